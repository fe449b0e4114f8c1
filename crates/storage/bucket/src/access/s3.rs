//! The client of S3-compatible servers.

use super::discreet::{Discreet, Key};
use super::{Access, ReadCredentials};
use async_trait::async_trait;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, AwsCredential, S3ConditionalPut};
use object_store::{
    Certificate, ClientConfigKey, ClientOptions, CredentialProvider, Error, ObjectStore, Result as Answer,
    RetryConfig,
};
use parking_lot::Mutex;
use std::ffi::OsString;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// Interval at which a credentials file is read again, and the shortest one, after a request was refused.
const REREAD: Duration = Duration::from_secs(60);
const REREAD_MIN: Duration = Duration::from_secs(5);

/// Time to connect to the server.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Variables that would weaken what the configuration says, or change what this crate relies on. Their names are those
/// of `object_store`'s keys without `aws_`.
const IGNORED: [&str; 9] = [
    "AWS_ALLOW_HTTP",
    "AWS_ALLOW_INVALID_CERTIFICATES",
    "AWS_BUCKET",
    "AWS_BUCKET_NAME",
    "AWS_CONDITIONAL_PUT",
    "AWS_ENDPOINT",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_SKIP_SIGNATURE",
];

/// Sets up a client. Its errors contain no credentials.
pub(super) fn client(bucket: &str, access: &Access) -> Result<Arc<dyn ObjectStore>, String> {
    let (mut builder, connections) = of_variables(std::env::vars_os());
    builder = builder
        .with_client_options(options(connections, access)?)
        .with_bucket_name(bucket)
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        // Not every server can delete several objects by one request.
        .with_disable_bulk_delete(true)
        // `Objects` and SlateDB repeat requests themselves, and know when that is safe.
        .with_retry(RetryConfig { max_retries: 2, ..RetryConfig::default() });
    if let Some(endpoint) = &access.endpoint {
        builder = builder.with_endpoint(endpoint);
    }
    if let Some(region) = &access.region {
        builder = builder.with_region(region);
    }
    let mut key: Arc<dyn Key> = Arc::new(EnvironmentKey);
    if let Some(read) = &access.credentials {
        let credentials = Arc::new(FileCredentials { read: Arc::clone(read), known: Mutex::new(None) });
        credentials.credential(Instant::now())?;
        builder = builder.with_credentials(Arc::clone(&credentials) as _);
        key = credentials;
    }
    let client = builder.build().map_err(|error| error.to_string())?;
    Ok(Arc::new(Discreet::new(Arc::new(client), key)))
}

/// Returns how connections are made: as the environment says, except for what would weaken the configuration.
fn options(of_environment: ClientOptions, access: &Access) -> Result<ClientOptions, String> {
    let mut options = of_environment
        .with_allow_http(access.allow_http)
        .with_config(ClientConfigKey::AllowInvalidCertificates, "false");
    if let Some(pem) = &access.authorities {
        let certificates = Certificate::from_pem_bundle(pem)
            .map_err(|error| format!("the file with certificates is damaged: {error}"))?;
        if certificates.is_empty() {
            return Err(
                "the file with certificates contains none (PEM, `-----BEGIN CERTIFICATE-----`)".into()
            );
        }
        options = certificates.into_iter().fold(options, ClientOptions::with_root_certificate);
    }
    Ok(options)
}

/// Takes what environment variables say of credentials and of the region, and of connections (`AWS_PROXY_URL`,
/// `AWS_TIMEOUT`).
fn of_variables(
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> (AmazonS3Builder, ClientOptions) {
    let (mut builder, mut connections) =
        (AmazonS3Builder::new(), ClientOptions::new().with_connect_timeout(CONNECT_LIMIT));
    for (name, value) in variables {
        let (Some(name), Some(value)) = (name.to_str(), value.to_str()) else { continue };
        if !name.starts_with("AWS_") || IGNORED.iter().any(|ignored| name.eq_ignore_ascii_case(ignored)) {
            continue;
        }
        match name.to_ascii_lowercase().parse() {
            // The builder's own are replaced as a whole.
            Ok(AmazonS3ConfigKey::Client(key)) => connections = connections.with_config(key, value),
            Ok(key) => builder = builder.with_config(key, value),
            Err(_) => {}
        }
    }
    (builder, connections)
}

/// A key of the environment, which this process does not read again.
struct EnvironmentKey;

impl Key for EnvironmentKey {
    fn parts(&self) -> Vec<Zeroizing<String>> {
        let names = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_TOKEN"];
        names.into_iter().filter_map(|name| std::env::var(name).ok()).map(Zeroizing::new).collect()
    }

    fn refused(&self) {}
}

/// The key in a file that is read again now and then, so that a new one needs no restart.
struct FileCredentials {
    read: ReadCredentials,
    /// Held while the file is read.
    known: Mutex<Option<Known>>,
}

/// What was read last.
struct Known {
    at: Instant,
    credential: Arc<AwsCredential>,
    /// Whether a request was refused since.
    is_refused: bool,
}

impl Known {
    fn is_fresh(&self, now: Instant) -> bool {
        now.duration_since(self.at) < if self.is_refused { REREAD_MIN } else { REREAD }
    }
}

impl fmt::Debug for FileCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FileCredentials")
    }
}

impl FileCredentials {
    /// A file that cannot be read, perhaps since it is being replaced, leaves the key as it is.
    fn credential(&self, now: Instant) -> Result<Arc<AwsCredential>, String> {
        let mut known = self.known.lock();
        if let Some(known) = known.as_ref().filter(|known| known.is_fresh(now)) {
            return Ok(Arc::clone(&known.credential));
        }
        let found = (self.read)().and_then(|text| parse(&text));
        let credential = match (found, known.take()) {
            (Ok(credential), _) => Arc::new(credential),
            (Err(error), Some(Known { credential, .. })) => {
                tracing::warn!(error, "the credentials file is not usable; the key read before is used");
                credential
            }
            (Err(error), None) => return Err(error),
        };
        *known = Some(Known { at: now, credential: Arc::clone(&credential), is_refused: false });
        Ok(credential)
    }
}

impl Key for FileCredentials {
    fn parts(&self) -> Vec<Zeroizing<String>> {
        let known = self.known.lock();
        let Some(Known { credential, .. }) = known.as_ref() else { return Vec::new() };
        let AwsCredential { key_id, secret_key, token } = &**credential;
        [Some(key_id), Some(secret_key), token.as_ref()]
            .into_iter()
            .flatten()
            .cloned()
            .map(Zeroizing::new)
            .collect()
    }

    fn refused(&self) {
        if let Some(known) = &mut *self.known.lock() {
            known.is_refused = true;
        }
    }
}

#[async_trait]
impl CredentialProvider for FileCredentials {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> Answer<Arc<AwsCredential>> {
        let failed = |error: String| Error::Generic { store: "credentials file", source: error.into() };
        self.credential(Instant::now()).map_err(failed)
    }
}

/// Parses a file in the format of `~/.aws/credentials`. The section is that of `AWS_PROFILE`, or `default`; lines
/// before the first section count as `default`.
fn parse(text: &[u8]) -> Result<AwsCredential, String> {
    let profile = std::env::var("AWS_PROFILE").unwrap_or_else(|_| "default".into());
    parse_profile(text, &profile)
}

fn parse_profile(text: &[u8], profile: &str) -> Result<AwsCredential, String> {
    let text = Zeroizing::new(std::str::from_utf8(text).map_err(|_| "the file is not text")?.to_owned());
    let (mut section, mut key_id, mut secret_key, mut token) = ("default", None, None, None);
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = name.trim();
        }
        let Some((name, value)) = line.split_once('=').filter(|_| section == profile) else { continue };
        let value = Some(value.trim().to_owned()).filter(|value| !value.is_empty());
        match name.trim() {
            "aws_access_key_id" => key_id = value,
            "aws_secret_access_key" => secret_key = value,
            "aws_session_token" => token = value,
            _ => {}
        }
    }
    let lacking = |what: &str| format!("the section [{profile}] of the credentials file has no `{what}`");
    Ok(AwsCredential {
        key_id: key_id.ok_or_else(|| lacking("aws_access_key_id"))?,
        secret_key: secret_key.ok_or_else(|| lacking("aws_secret_access_key"))?,
        token,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    const FILE: &str = "# comment\n[default]\naws_access_key_id = AKID\naws_secret_access_key = s3cret/+=x\n\
        region = x\n[backup]\naws_access_key_id=B\naws_secret_access_key=b\naws_session_token = t\n";

    fn reading(text: &'static str) -> Access {
        let read: ReadCredentials = Arc::new(move || Ok(Zeroizing::new(text.as_bytes().to_vec())));
        Access { credentials: Some(read), ..Access::default() }
    }

    #[test]
    fn a_credentials_file_has_sections() {
        let default = parse_profile(FILE.as_bytes(), "default").unwrap();
        assert_eq!((&*default.key_id, &*default.secret_key, default.token), ("AKID", "s3cret/+=x", None));
        let backup = parse_profile(FILE.as_bytes(), "backup").unwrap();
        assert_eq!((&*backup.secret_key, backup.token.as_deref()), ("b", Some("t")));
        let error = parse_profile(FILE.as_bytes(), "none").unwrap_err();
        assert!(error.contains("[none]") && error.contains("`aws_access_key_id`"), "{error}");
        let error = parse_profile(b"aws_access_key_id = s3cret", "default").unwrap_err();
        assert!(error.contains("`aws_secret_access_key`") && !error.contains("s3cret"), "{error}");
        assert!(parse_profile(b"\xff", "default").unwrap_err().contains("not text"));
    }

    #[test]
    fn a_file_is_read_again_and_a_missing_one_keeps_the_key() {
        let texts = Mutex::new(vec![
            Err("gone".to_owned()),
            Ok(FILE.replace("s3cret", "other")),
            Ok(FILE.to_owned()),
        ]);
        let read: ReadCredentials =
            Arc::new(move || texts.lock().pop().unwrap().map(|text| Zeroizing::new(text.into_bytes())));
        let file = FileCredentials { read, known: Mutex::new(None) };
        let begun = Instant::now();
        let secret = |after| file.credential(begun + after).unwrap().secret_key.clone();
        assert_eq!(secret(Duration::ZERO), "s3cret/+=x");
        assert_eq!(secret(REREAD / 2), "s3cret/+=x");
        assert_eq!(secret(REREAD), "other/+=x");
        assert_eq!(secret(3 * REREAD), "other/+=x");
    }

    #[test]
    fn a_refused_key_is_read_again_within_seconds() {
        let reads = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&reads);
        let read: ReadCredentials = Arc::new(move || {
            let number = counted.fetch_add(1, Relaxed);
            Ok(Zeroizing::new(FILE.replace("AKID", &format!("KEY{number}")).into_bytes()))
        });
        let file = FileCredentials { read, known: Mutex::new(None) };
        let begun = Instant::now();
        let key = |after| file.credential(begun + after).unwrap().key_id.clone();
        assert_eq!(key(Duration::ZERO), "KEY0");
        file.refused();
        assert_eq!(key(REREAD_MIN / 2), "KEY0");
        assert_eq!((key(REREAD_MIN), file.parts()[0].as_str()), ("KEY1".into(), "KEY1"));
        // Without a refusal of this one, as late as ever.
        assert_eq!(key(2 * REREAD_MIN), "KEY1");
        file.refused();
        assert_eq!(key(2 * REREAD_MIN), "KEY2");
        assert_eq!(reads.load(Relaxed), 3);
    }

    #[test]
    fn the_environment_says_how_to_connect_but_not_less_safely() {
        let variables = [
            ("AWS_PROXY_URL", "http://proxy.example:3128"),
            ("AWS_TIMEOUT", "7 s"),
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_ALLOW_INVALID_CERTIFICATES", "true"),
            ("AWS_REGION", "eu-x-1"),
            ("PROXY_URL", "http://other.example"),
        ];
        let (builder, connections) = of_variables(variables.map(|(name, value)| (name.into(), value.into())));
        let region = builder.get_config_value(&AmazonS3ConfigKey::Region);
        assert_eq!(region.as_deref(), Some("eu-x-1"));
        let options = options(connections, &reading(FILE)).unwrap();
        let set = |key| options.get_config_value(&key);
        assert_eq!(set(ClientConfigKey::ProxyUrl).as_deref(), Some("http://proxy.example:3128"));
        assert_eq!(set(ClientConfigKey::Timeout).as_deref(), Some("7 s"));
        assert_eq!(set(ClientConfigKey::AllowHttp).as_deref(), Some("false"));
        assert_eq!(set(ClientConfigKey::AllowInvalidCertificates).as_deref(), Some("false"));
    }

    #[test]
    fn a_client_shows_no_secret() {
        let bucket = client("b", &reading(FILE)).unwrap();
        let bounded = crate::Bounded::new(bucket, CONNECT_LIMIT);
        let shown = format!("{bounded:?} {bounded} {:?}", reading(FILE));
        assert!(!shown.contains("s3cret") && !shown.contains("AKID"), "{shown}");
        assert!(!client("b", &reading("aws_access_key_id = s3cret")).unwrap_err().contains("s3cret"));
    }

    /// Servers name the key in their refusals.
    #[test]
    fn a_refusal_shows_no_key() {
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", server.local_addr().unwrap());
        let answers = std::thread::spawn(move || {
            let (mut client, _) = server.accept().unwrap();
            let mut request = [0; 4096];
            assert!(client.read(&mut request).unwrap() > 0);
            let body = "<Error><Code>SignatureDoesNotMatch</Code><AWSAccessKeyId>AKIDAKID</AWSAccessKeyId>\
                        <Message>AKIDAKID is unknown</Message></Error>";
            let head = format!("HTTP/1.1 403 Forbidden\r\nContent-Length: {}\r\n\r\n", body.len());
            client.write_all((head + body).as_bytes()).unwrap();
        });
        let file = "aws_access_key_id = AKIDAKID\naws_secret_access_key = s3cret\n";
        let access = Access { endpoint: Some(endpoint), allow_http: true, ..reading(file) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let bucket = client("b", &access).unwrap();
        let asked = runtime.block_on(async {
            let name = object_store::path::Path::from("x");
            object_store::ObjectStoreExt::get(&*bucket, &name).await
        });
        let error = asked.unwrap_err();
        assert!(crate::is_refusal(&error), "{error}");
        let shown = format!("{error} {error:?}");
        assert!(shown.contains("SignatureDoesNotMatch") && !shown.contains("AKIDAKID"), "{shown}");
        answers.join().unwrap();
    }

    #[test]
    fn certificates_must_be_some() {
        let with = |pem: &[u8]| Access { authorities: Some(pem.to_vec()), ..reading(FILE) };
        assert!(client("b", &with(b"")).unwrap_err().contains("BEGIN CERTIFICATE"));
        assert!(client("b", &with(b"-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n")).is_err());
    }

    /// The server is asked in clear text only if that is allowed.
    #[test]
    fn a_server_without_tls_must_be_allowed() {
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", server.local_addr().unwrap());
        let access = Access { endpoint: Some(endpoint), ..reading(FILE) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let bucket = client("b", &access).unwrap();
        let asked = runtime.block_on(async {
            let name = object_store::path::Path::from("x");
            object_store::ObjectStoreExt::head(&*bucket, &name).await
        });
        let error = format!("{:?}", asked.unwrap_err());
        assert!(!error.contains("s3cret"), "{error}");
        server.set_nonblocking(true).unwrap();
        assert_eq!(
            server.accept().unwrap_err().kind(),
            std::io::ErrorKind::WouldBlock,
            "it was connected to"
        );
    }
}
