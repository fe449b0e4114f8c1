//! SeaweedFS, a server of S3 buckets, inside a cell.

use crate::cell::Cell;
use anyhow::{Context, Result, ensure};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Address of its buckets inside the cell.
pub const ENDPOINT: &str = "http://127.0.0.1:8333";

/// Id of the key.
pub const KEY: &str = "key";

/// Secret of the key.
pub const SECRET: &str = "s3cr3t-of-the-bucket";

/// Time limit for the server to be there, or to end.
const LIMIT: Duration = Duration::from_secs(90);

/// Port with its counters, in Prometheus's format.
const METRICS_PORT: u16 = 9327;

/// SeaweedFS in a cell. It ends with the cell.
pub struct Seaweed<'a> {
    cell: &'a Cell,
}

/// What clients have asked of one bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Requests {
    /// Requests that write an object.
    pub put: f64,
    /// Requests that read an object or its description.
    pub get: f64,
    /// Requests that list objects.
    pub list: f64,
    /// Requests that delete an object.
    pub delete: f64,
    /// All other requests.
    pub other: f64,
    /// Bytes of objects that clients sent.
    pub received_bytes: f64,
    /// Bytes of objects that clients read.
    pub sent_bytes: f64,
}

impl Requests {
    /// Returns what was asked between `earlier` and this count.
    #[must_use]
    pub fn since(&self, earlier: &Requests) -> Requests {
        Requests {
            put: self.put - earlier.put,
            get: self.get - earlier.get,
            list: self.list - earlier.list,
            delete: self.delete - earlier.delete,
            other: self.other - earlier.other,
            received_bytes: self.received_bytes - earlier.received_bytes,
            sent_bytes: self.sent_bytes - earlier.sent_bytes,
        }
    }

    /// Returns the number of all requests.
    pub fn all(&self) -> f64 {
        self.put + self.get + self.list + self.delete + self.other
    }

    /// Adds up the counters of one bucket. Those that a server has not counted yet are 0.
    fn parse(text: &str, bucket: &str) -> Requests {
        let mut requests = Requests::default();
        let label = format!("bucket=\"{bucket}\"");
        for line in text.lines().filter(|line| line.contains(&label)) {
            let Some((name, rest)) = line.split_once('{') else { continue };
            let Some((labels, Ok(value))) =
                rest.rsplit_once('}').map(|(labels, value)| (labels, value.trim().parse::<f64>()))
            else {
                continue;
            };
            let is = |kind: &str| labels.contains(&format!("type=\"{kind}\""));
            match name {
                "SeaweedFS_s3_bucket_traffic_received_bytes_total" => requests.received_bytes += value,
                "SeaweedFS_s3_bucket_traffic_sent_bytes_total" => requests.sent_bytes += value,
                "SeaweedFS_s3_request_total" if is("PUT") => requests.put += value,
                "SeaweedFS_s3_request_total" if is("GET") || is("HEAD") => requests.get += value,
                "SeaweedFS_s3_request_total" if is("LIST") => requests.list += value,
                "SeaweedFS_s3_request_total" if is("DELETE") => requests.delete += value,
                "SeaweedFS_s3_request_total" => requests.other += value,
                _ => {}
            }
        }
        requests
    }
}

impl<'a> Seaweed<'a> {
    /// Returns the server that runs in `cell`.
    pub fn of(cell: &'a Cell) -> Seaweed<'a> {
        Seaweed { cell }
    }

    /// Starts a server with these buckets, and waits until it serves them.
    ///
    /// # Errors
    /// If it does not serve within 90 s; the error has the end of its log.
    pub fn start(cell: &'a Cell, buckets: &[&str]) -> Result<Seaweed<'a>> {
        let seaweed = Seaweed { cell };
        std::fs::create_dir_all(seaweed.folder())?;
        let identity = serde_json::json!({ "identities": [{
            "name": "cellar",
            "credentials": [{ "accessKey": KEY, "secretKey": SECRET }],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }] });
        std::fs::write(cell.path().join("weed/identity.json"), identity.to_string())?;
        seaweed.begin()?;
        buckets.iter().try_for_each(|bucket| seaweed.make(bucket)).with_context(|| seaweed.log())?;
        seaweed.wait()?;
        Ok(seaweed)
    }

    /// Returns the folder of its data.
    pub fn folder(&self) -> PathBuf {
        self.cell.path().join("weed/data")
    }

    /// Writes a file with the key, in the format of `~/.aws/credentials`, which only the owner may read, and returns its
    /// path.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write_credentials(cell: &Cell) -> Result<PathBuf> {
        let path = cell.path().join("aws");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
        write!(file, "[default]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n")?;
        Ok(path)
    }

    fn make(&self, bucket: &str) -> Result<()> {
        let shell = "timeout 20 weed shell -master=127.0.0.1:9333";
        wait_for(LIMIT, || {
            let made = self.cell.shell(&format!("echo 's3.bucket.create -name {bucket}' | {shell}"))?;
            let listed = self.cell.shell(&format!("echo s3.bucket.list | {shell}"))?;
            Ok(made.status == 0 && listed.text.contains(bucket))
        })
    }

    /// Returns the last lines of its log.
    pub fn log(&self) -> String {
        let text = std::fs::read_to_string(self.cell.path().join("weed.log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        format!("SeaweedFS's log ends:\n{}", lines[lines.len().saturating_sub(20)..].join("\n"))
    }

    /// Starts it again after its end, without waiting. Its parts connect through sockets in `/tmp` whose names two servers
    /// share, so each has a `/tmp` of its own, and its files in it: it resolves all paths there.
    ///
    /// # Errors
    /// If the process cannot be started.
    pub fn begin(&self) -> Result<()> {
        let folder = self.cell.path().display();
        let script = format!(
            "cd {folder}; setsid unshare -m sh -c 'mount --bind weed /tmp && cd /tmp && exec weed server -dir=/tmp/data \
             -ip=127.0.0.1 -ip.bind=0.0.0.0 -volume.max=100 -volume.preStopSeconds=0 -s3 -s3.config=/tmp/identity.json \
             -master.telemetry=false -metricsPort={METRICS_PORT}' >>weed.log 2>&1 </dev/null & echo $! >{folder}/weed.pid"
        );
        self.cell.shell(&script)?.ok().map(drop)
    }

    /// Waits until it accepts connections for buckets.
    ///
    /// # Errors
    /// If it does not within 90 s.
    pub fn wait(&self) -> Result<()> {
        wait_for(LIMIT, || Ok(self.cell.shell("exec 3<>/dev/tcp/127.0.0.1/8333")?.status == 0))
            .with_context(|| self.log())
    }

    /// Ends it at once: an orderly end takes half a minute.
    ///
    /// # Errors
    /// If it does not run, or does not end within 90 s.
    pub fn kill(&self) -> Result<()> {
        let folder = self.cell.path().display();
        self.signal("KILL")?;
        let is_gone = || Ok(self.cell.shell(&format!("! kill -0 $(cat {folder}/weed.pid)"))?.status == 0);
        wait_for(LIMIT, is_gone).with_context(|| self.log())
    }

    /// Stops it for a while: requests are neither refused nor answered. Returns for how long.
    ///
    /// # Errors
    /// If it does not run.
    pub fn rest(&self, span: Duration) -> Result<Duration> {
        let begun = Instant::now();
        self.signal("STOP")?;
        std::thread::sleep(span);
        self.signal("CONT")?;
        Ok(begun.elapsed())
    }

    fn signal(&self, signal: &str) -> Result<()> {
        let folder = self.cell.path().display();
        self.cell.shell(&format!("kill -{signal} $(cat {folder}/weed.pid)"))?.ok().map(drop)
    }

    /// Returns what clients have asked of a bucket since it started.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn requests(&self, bucket: &str) -> Result<Requests> {
        let get = format!(
            "exec 3<>/dev/tcp/127.0.0.1/{METRICS_PORT} && printf 'GET /metrics HTTP/1.0\\r\\n\\r\\n' >&3 && cat <&3"
        );
        let text = self.cell.shell(&get)?.ok().context("SeaweedFS's counters")?;
        ensure!(text.contains("SeaweedFS_"), "these are not SeaweedFS's counters: {text}");
        Ok(Requests::parse(&text, bucket))
    }
}

fn wait_for(limit: Duration, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + limit;
    while !done()? {
        ensure!(Instant::now() < deadline, "waited {limit:?} in vain");
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTERS: &str = "# TYPE SeaweedFS_s3_request_total counter\n\
        SeaweedFS_s3_request_total{bucket=\"cellar\",code=\"200\",type=\"GET\"} 10\n\
        SeaweedFS_s3_request_total{bucket=\"cellar\",code=\"404\",type=\"HEAD\"} 1\n\
        SeaweedFS_s3_request_total{bucket=\"cellar\",code=\"200\",type=\"PUT\"} 1.5e+06\n\
        SeaweedFS_s3_request_total{bucket=\"cellar\",code=\"412\",type=\"PUT\"} 2\n\
        SeaweedFS_s3_request_total{bucket=\"other\",code=\"200\",type=\"PUT\"} 7\n\
        SeaweedFS_s3_request_total{bucket=\"cellar\",code=\"204\",type=\"DELETE\"} 3\n\
        SeaweedFS_s3_request_total{bucket=\"cellar\",code=\"200\",type=\"LIST\"} 4\n\
        SeaweedFS_s3_request_total{bucket=\"cellar\",code=\"200\",type=\"POST\"} 5\n\
        SeaweedFS_s3_request_seconds_count{bucket=\"cellar\",type=\"PUT\"} 99\n\
        SeaweedFS_s3_bucket_traffic_received_bytes_total{bucket=\"cellar\"} 5000\n\
        SeaweedFS_s3_bucket_traffic_sent_bytes_total{bucket=\"cellar\"} 6000\n";

    #[test]
    fn counters_of_one_bucket_are_added_up() {
        let found = Requests::parse(COUNTERS, "cellar");
        let expected = Requests {
            put: 1_500_002.0,
            get: 11.0,
            list: 4.0,
            delete: 3.0,
            other: 5.0,
            received_bytes: 5000.0,
            sent_bytes: 6000.0,
        };
        assert_eq!(found, expected);
        assert!((found.all() - 1_500_025.0).abs() < 0.5);
        assert_eq!(Requests::parse(COUNTERS, "cell"), Requests::default());
        let since = found.since(&Requests { put: 2.0, ..Requests::default() });
        assert_eq!(since, Requests { put: 1_500_000.0, ..expected });
    }
}
