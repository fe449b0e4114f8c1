//! The client of S3-compatible servers.

use super::discreet::Discreet;
use super::{Access, ReadCredentials};
use async_trait::async_trait;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, AwsCredential, S3ConditionalPut};
use object_store::{
    Certificate, ClientConfigKey, ClientOptions, CredentialProvider, Error, ObjectStore, Result as Answer,
    RetryConfig,
};
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// Interval at which a credentials file is read again.
const REREAD: Duration = Duration::from_secs(60);

/// Time to connect to the server.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Variables that would weaken what the configuration says, or change what this crate relies on. Their names are those
/// of `object_store`'s keys without `aws_`.
const IGNORED: [&str; 8] = [
    "AWS_ALLOW_HTTP",
    "AWS_ALLOW_INVALID_CERTIFICATES",
    "AWS_BUCKET",
    "AWS_BUCKET_NAME",
    "AWS_CONDITIONAL_PUT",
    "AWS_ENDPOINT",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
];

/// Sets up a client. Its errors contain no credentials.
pub(super) fn client(bucket: &str, access: &Access) -> Result<Arc<dyn ObjectStore>, String> {
    let mut builder = of_environment();
    let options = options(access)?;
    builder = builder
        .with_client_options(options.with_config(ClientConfigKey::AllowInvalidCertificates, "false"))
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
    let mut file = None;
    if let Some(read) = &access.credentials {
        let credentials = Arc::new(FileCredentials { read: Arc::clone(read), known: Mutex::new(None) });
        credentials.credential(Instant::now())?;
        builder = builder.with_credentials(Arc::clone(&credentials) as _);
        file = Some(credentials);
    }
    let client = builder.build().map_err(|error| error.to_string())?;
    let key_id = move || match &file {
        Some(file) => file.key_id(),
        None => std::env::var("AWS_ACCESS_KEY_ID").ok(),
    };
    Ok(Arc::new(Discreet::new(Arc::new(client), Arc::new(key_id))))
}

/// Returns how connections are made.
fn options(access: &Access) -> Result<ClientOptions, String> {
    let mut options =
        ClientOptions::new().with_allow_http(access.allow_http).with_connect_timeout(CONNECT_LIMIT);
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

/// Takes what the environment says of credentials and of the region.
fn of_environment() -> AmazonS3Builder {
    let mut builder = AmazonS3Builder::new();
    for (name, value) in std::env::vars_os() {
        let (Some(name), Some(value)) = (name.to_str(), value.to_str()) else { continue };
        let key = name.to_ascii_lowercase().parse::<AmazonS3ConfigKey>();
        if let (true, false, Ok(key)) = (name.starts_with("AWS_"), IGNORED.contains(&name), key) {
            builder = builder.with_config(key, value);
        }
    }
    builder
}

/// The key in a file that is read again now and then, so that a new one needs no restart.
struct FileCredentials {
    read: ReadCredentials,
    /// The key and when it was read. Held while the file is read.
    known: Mutex<Option<(Instant, Arc<AwsCredential>)>>,
}

impl fmt::Debug for FileCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FileCredentials")
    }
}

impl FileCredentials {
    /// Returns the id of the key that was read last.
    fn key_id(&self) -> Option<String> {
        self.known.lock().as_ref().map(|(_, credential)| credential.key_id.clone())
    }

    /// A file that cannot be read, perhaps since it is being replaced, leaves the key as it is.
    fn credential(&self, now: Instant) -> Result<Arc<AwsCredential>, String> {
        let mut known = self.known.lock();
        if let Some((read, credential)) = &*known
            && now.duration_since(*read) < REREAD
        {
            return Ok(Arc::clone(credential));
        }
        let found = (self.read)().and_then(|text| parse(&text));
        let credential = match (found, known.take()) {
            (Ok(credential), _) => Arc::new(credential),
            (Err(error), Some((_, credential))) => {
                tracing::warn!(error, "the credentials file is not usable; the key read before is used");
                credential
            }
            (Err(error), None) => return Err(error),
        };
        *known = Some((now, Arc::clone(&credential)));
        Ok(credential)
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
        let value = Some(value.trim().to_owned());
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
