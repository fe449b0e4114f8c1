//! Partitions in buckets; here the bucket is a folder.

use crate::support::place::{Place, cellar};

fn stderr(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[cfg(not(feature = "bucket"))]
mod without {
    use super::*;

    #[test]
    fn a_bucket_is_refused_with_the_line_and_the_feature() {
        let place = Place::new("[[partition]]\nname = \"b\"\nbucket = \"file:///srv\"\n");
        let text = std::fs::read_to_string(&place.config).unwrap();
        let line = 1 + text.lines().position(|line| line.starts_with("bucket")).unwrap();
        for command in [&["config", "check"][..], &["serve"]] {
            let output = place.output(command);
            let error = stderr(&output);
            assert_eq!(output.status.code(), Some(1), "{error}");
            assert!(error.contains(&format!("line {line}")), "{error}");
            assert!(error.contains("cargo feature `bucket`"), "{error}");
        }
        let output = cellar(&["bucket", "probe", "file:///srv"]).output().unwrap();
        assert!(output.status.code() == Some(1) && stderr(&output).contains("cargo feature `bucket`"));
    }
}

#[cfg(feature = "bucket")]
mod with {
    use super::*;
    use crate::support::cell::Cell;
    use crate::support::process::Process;
    use crate::support::soon;
    use serde_json::{Value, json};
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::path::Path;
    use tls_server::{Identity, TlsServer};

    fn partition(folder: &Path) -> String {
        format!(
            "[[partition]]\nname = \"b\"\nbucket = \"file://{}\"\nsize_mb = 2048\n\
             [encryption.b]\nkey_command = \"printf '%064d' 7\"\n",
            folder.display()
        )
    }

    fn partitions(place: &Place) -> Vec<(String, u64)> {
        let rows = place.stat("partitions");
        let of =
            |row: &Value| (row["partition"].as_str().unwrap().to_owned(), row["offline"].as_u64().unwrap());
        rows.iter().map(of).collect()
    }

    fn check_file(place: &Place) {
        let copy = place.path("copy");
        place.run(&["cp", "cell:data/file", copy.to_str().unwrap()]);
        assert_eq!(std::fs::read(&copy).unwrap(), contents());
        std::fs::remove_file(copy).unwrap();
    }

    fn contents() -> Vec<u8> {
        (0..700_000_u32).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 13) as u8).collect()
    }

    #[test]
    fn a_folder_is_probed() {
        let folder = tempfile::tempdir().unwrap();
        let address = format!("file://{}", folder.path().display());
        let output = cellar(&["bucket", "probe", &address, "--json"]).output().unwrap();
        let probed: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&probed["bucket"], &probed["usable"]), (&json!(address), &json!(true)));
        let names: Vec<_> =
            probed["operations"].as_array().unwrap().iter().map(|one| &one["operation"]).collect();
        assert_eq!((names.len(), &probed["versions"]), (12, &json!(false)));
        assert!(names.contains(&&json!("replace-race")), "{names:?}");
        let said = crate::support::place::printed(&mut cellar(&["bucket", "probe", &address]));
        assert!(said.contains("REQUIRES") && said.contains("can hold a partition"), "{said}");
        for (wrong, words) in [
            ("file:///absent/folder", "/absent/folder"),
            ("ftp://x", "valid are `s3://"),
            ("s3://key:s3cret@x", "must not contain credentials"),
        ] {
            let output = cellar(&["bucket", "probe", wrong]).output().unwrap();
            let error = stderr(&output);
            assert!(output.status.code() == Some(1) && error.contains(words), "{wrong}: {error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
    }

    /// Neither what was not proved nor what the environment allows is used.
    #[test]
    fn a_probe_trusts_no_unknown_authority() {
        let (folder, server) = (tempfile::tempdir().unwrap(), TlsServer::start(Identity::Good));
        let (key, ca) = (folder.path().join("key"), folder.path().join("ca"));
        let text = b"aws_access_key_id = AKIDAKID\naws_secret_access_key = s3cret\n";
        cellar_config::files::replace(&key, text).unwrap();
        std::fs::write(&ca, server.authority()).unwrap();
        let probe = |options: &[&str]| {
            let endpoint = server.endpoint();
            let mut probe = cellar(&["bucket", "probe", "s3://b/p", "--endpoint", &endpoint]);
            probe.args(["--credentials-file", key.to_str().unwrap()]).args(options);
            probe.env("AWS_ALLOW_HTTP", "true").env("AWS_ALLOW_INVALID_CERTIFICATES", "true");
            let output = probe.output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout).into_owned() + &stderr(&output);
            assert!(output.status.code() == Some(1) && !said.contains("s3cret"), "{said}");
            said
        };
        let said = probe(&[]);
        assert!(said.contains("invalid peer certificate: UnknownIssuer"), "{said}");
        assert_eq!(server.arrived().requests, <[String; 0]>::default());
        server.always_answer("403 Forbidden", "<Error><Code>AccessDenied</Code></Error>");
        let said = probe(&["--ca-file", ca.to_str().unwrap()]);
        assert!(said.contains("AccessDenied"), "{said}");
        assert!(!server.arrived().requests.is_empty());
    }

    #[test]
    fn a_new_partition_is_logged_loudly() {
        let folder = tempfile::tempdir().unwrap();
        let mut server = Process::start(Place::new(&partition(folder.path())));
        let created = format!("created a new, empty partition at file://{}", folder.path().display());
        assert!(logged(&server, &created).contains("WARN"));
        server.kill();
        server.restart();
        assert!(!server.log().contains(&created), "{}", server.log());
    }

    #[test]
    fn it_serves_beside_a_local_one_and_is_checked() {
        let folder = tempfile::tempdir().unwrap();
        let cell = Cell::start(&partition(folder.path()));
        assert_eq!(partitions(&cell), [("/vicepa".to_owned(), 0), ("/vicepb".to_owned(), 0)]);
        cell.run(&["volume", "create", "data", "--partition", "b"]);
        std::fs::write(cell.path("file"), contents()).unwrap();
        cell.run(&["cp", cell.path("file").to_str().unwrap(), "cell:data/file"]);
        let server = cell.address.to_string();
        check_requests(&cell);
        for to in ["a", "b"] {
            cell.run(&["volume", "move", "data", "--to", &server, "--partition", to]);
            check_file(&cell);
        }
        let cell = cell.restart();
        check_file(&cell);
        let Cell { running, place } = cell;
        running.stop().unwrap();
        let address = format!("file://{}", folder.path().display());
        let rows = place.rows(&["store", "check", "--data"]);
        let all: Vec<_> = rows.iter().map(|row| row["partition"].as_str().unwrap()).collect();
        assert_eq!(all, [place.path("vicepa").to_str().unwrap(), &address], "{rows:#?}");
        assert!(rows.iter().all(|row| row["damage_count"] == 0), "{rows:#?}");
        assert_eq!(place.rows(&["store", "check", "--data", &address])[0]["volumes"], 1);
        let output = place.output(&["store", "check", "file:///absent"]);
        assert!(stderr(&output).contains("has no partition file:///absent"), "{}", stderr(&output));
        replace_the_master_key(&place, &address);
        check_file(&Cell::start_at(place, &cellar_server::FaultInjection::default()));
    }

    /// Requests to the bucket were counted.
    fn check_requests(place: &Place) {
        let rows = place.stat("buckets");
        let put = rows.iter().find(|row| row["request"] == "put").unwrap();
        let (requests, sent) = (&put["requests"], &put["sent_bytes"]);
        assert_eq!(
            (&put["partition"], &put["failed"], &put["failing_ns"]),
            (&json!("/vicepb"), &json!(0), &json!(0))
        );
        assert!(requests.as_u64() > Some(3) && sent.as_u64() > Some(1000), "{put}");
        assert!(
            rows.iter().any(|row| row["request"] == "list" && row["time_ns"]["count"].as_u64() > Some(0))
        );
    }

    /// Without the new key, the partition cannot be read afterwards.
    fn replace_the_master_key(place: &Place, address: &str) {
        let new = "printf '%064d' 8";
        let row: Value = serde_json::from_str(&place.run(&[
            "store",
            "rekey",
            address,
            "--new-key-command",
            new,
            "--new-data-key",
            "--json",
        ]))
        .unwrap();
        assert_eq!(row, json!({ "partition": address, "data_keys": 2 }));
        let refused = place.output(&["store", "check", address]);
        assert!(!refused.status.success() && stderr(&refused).contains("key"), "{}", stderr(&refused));
        let text = std::fs::read_to_string(&place.config).unwrap();
        std::fs::write(&place.config, text.replace("printf '%064d' 7", new)).unwrap();
    }

    /// Begins a server with a partition in the bucket `absent` at a port of this machine.
    fn begin(port: u16) -> Process {
        let place = Place::new(&format!(
            "[[partition]]\nname = \"b\"\nbucket = \"s3://absent/b\"\n\
             endpoint = \"http://127.0.0.1:{port}\"\nallow_http = true\ncredentials_file = \"aws\"\n"
        ));
        let key = b"aws_access_key_id = AKIDAKID\naws_secret_access_key = s3cret\n";
        cellar_config::files::replace(&place.path("aws"), key).unwrap();
        Process::begin(place, &[("CELLAR_LOG", "warn")])
    }

    /// Returns the first line of the log with these words.
    fn logged(server: &Process, words: &str) -> String {
        soon(words, || server.log().lines().find(|line| line.contains(words)).map(str::to_owned))
    }

    #[test]
    fn the_log_says_why_a_bucket_is_not_reached() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let server = begin(port);
        let first = logged(&server, "a request to the bucket failed");
        assert!(first.contains("Connection refused"), "{first}");
        let waiting = logged(&server, "waiting to own the partition");
        assert!(waiting.contains("Connection refused") && !waiting.contains("standby"), "{waiting}");
        assert!(!server.log().contains("s3cret"));
    }

    #[test]
    fn the_log_says_that_there_is_no_such_bucket() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = begin(listener.local_addr().unwrap().port());
        std::thread::spawn(move || listener.incoming().try_for_each(|client| without_buckets(client?)));
        let refused = logged(&server, "the partition cannot be opened");
        assert!(refused.contains("there is no such bucket"), "{refused}");
    }

    /// Answers one request as a server of S3 without any bucket.
    fn without_buckets(client: TcpStream) -> std::io::Result<()> {
        let mut request = BufReader::new(client);
        let mut body = 0;
        loop {
            let mut line = String::new();
            if request.read_line(&mut line)? <= 2 {
                break;
            }
            if let Some(length) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                body = length.trim().parse().unwrap();
            }
        }
        request.read_exact(&mut vec![0; body])?;
        let error = "<Error><Code>NoSuchBucket</Code></Error>";
        let head = format!("Connection: close\r\nContent-Length: {}\r\n\r\n", error.len());
        write!(request.get_mut(), "HTTP/1.1 404 Not Found\r\n{head}{error}")
    }

    /// Only its own volumes are offline, until it is there.
    #[test]
    fn one_that_is_away_at_the_start_comes_later() {
        let folder = tempfile::tempdir().unwrap();
        let bucket = folder.path().join("mounted");
        std::fs::create_dir(&bucket).unwrap();
        let cell = Cell::start(&partition(&bucket));
        cell.run(&["volume", "create", "data", "--partition", "b"]);
        cell.run(&["volume", "create", "here", "--partition", "a"]);
        std::fs::write(cell.path("file"), contents()).unwrap();
        cell.run(&["cp", cell.path("file").to_str().unwrap(), "cell:data/file"]);
        let Cell { running, place } = cell;
        running.stop().unwrap();
        let away = folder.path().join("away");
        std::fs::rename(&bucket, &away).unwrap();
        let cell = Cell::start_at(place, &cellar_server::FaultInjection::default());
        assert_eq!(partitions(&cell), [("/vicepa".to_owned(), 0), ("/vicepb".to_owned(), 1)]);
        cell.run(&["cp", cell.path("file").to_str().unwrap(), "cell:here/file"]);
        std::fs::rename(&away, &bucket).unwrap();
        soon("the partition is open", || (partitions(&cell)[1].1 == 0).then_some(()));
        check_file(&cell);
        cell.run(&["volume", "create", "more", "--partition", "b"]);
        cell.restart().run(&["volume", "examine", "more"]);
    }
}
