//! Controls a headless Chromium through its DevTools protocol over a pair of named pipes: JSON messages, each
//! terminated by a zero byte.

use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Time limit for any operation on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
const NAP: Duration = Duration::from_millis(50);

/// A browser with one page; dropping it ends the browser.
pub(crate) struct Browser {
    child: Child,
    commands: File,
    messages: Receiver<Value>,
    last: u64,
    session: String,
    /// Complaints of the page.
    complaints: Vec<String>,
    _folder: tempfile::TempDir,
}

/// Returns the path of Chromium; `None` if it is to be skipped.
pub(crate) fn find() -> Option<PathBuf> {
    let is_skipped = std::env::var("CELLAR_TEST_SKIP").is_ok_and(|words| words.contains("chromium"));
    if is_skipped {
        eprintln!("skipped: CELLAR_TEST_SKIP has `chromium`");
        return None;
    }
    let path = PathBuf::from("/usr/bin/chromium");
    assert!(
        path.exists(),
        "Chromium is missing: /usr/bin/chromium, of the package `chromium`; CELLAR_TEST_SKIP=chromium goes without"
    );
    Some(path)
}

impl Browser {
    pub(crate) fn start(chromium: &Path) -> Browser {
        let folder = tempfile::tempdir().unwrap();
        let [to, from] = ["to", "from"].map(|name| folder.path().join(name));
        let made = Command::new("mkfifo").args([&to, &from]).status().unwrap();
        assert!(made.success());
        // Opened for both directions, so that opening does not block.
        let open = |path: &Path| OpenOptions::new().read(true).write(true).open(path).unwrap();
        let (commands, answers) = (open(&to), open(&from));
        let log = File::create(folder.path().join("log")).unwrap();
        let child = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<\"$TO\" 4>\"$FROM\""])
            .arg(chromium)
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--hide-scrollbars",
            ])
            .args([
                "--no-first-run",
                "--disable-extensions",
                "--disable-background-networking",
                "--disable-sync",
            ])
            .args(["--no-proxy-server", "--lang=en-US", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
            .env("TO", &to)
            .env("FROM", &from)
            .env("TZ", "UTC")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let (session, complaints) = Default::default();
        let messages = listen(answers);
        let mut browser =
            Browser { child, commands, messages, last: 0, session, complaints, _folder: folder };
        browser.open_page();
        browser
    }

    fn open_page(&mut self) {
        let target = self.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = self.call("Target.attachToTarget", &attach);
        attached["sessionId"].as_str().unwrap().clone_into(&mut self.session);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            self.call(&format!("{domain}.enable"), &json!({}));
        }
    }

    /// Calls a method of the protocol.
    pub(crate) fn call(&mut self, method: &str, parameters: &Value) -> Value {
        self.last += 1;
        let mut message = json!({ "id": self.last, "method": method, "params": parameters });
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        self.commands.write_all(format!("{message}\0").as_bytes()).unwrap();
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let message = self.messages.recv_timeout(left).unwrap_or_else(|_| {
                panic!("Chromium does not answer {method}: {:?}", self.child.try_wait());
            });
            if message["id"] == self.last {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
            self.note(&message);
        }
    }

    /// Records errors, refused loads and violations of the page's policy.
    fn note(&mut self, message: &Value) {
        let parameters = &message["params"];
        match message["method"].as_str() {
            Some("Runtime.exceptionThrown") => self.complaints.push(parameters.to_string()),
            Some("Log.entryAdded") if parameters["entry"]["level"] == "error" => {
                self.complaints.push(parameters["entry"].to_string());
            }
            Some("Runtime.consoleAPICalled") if parameters["type"] != "log" => {
                self.complaints.push(parameters.to_string());
            }
            _ => {}
        }
    }

    /// Returns the page's complaints since the last call.
    pub(crate) fn complaints(&mut self) -> Vec<String> {
        // Messages sent before this answer are received before it.
        self.evaluate("0");
        std::mem::take(&mut self.complaints)
    }

    /// Returns the value of an expression in the page.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let parameters = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let reported = self.call("Runtime.evaluate", &parameters);
        assert!(reported["exceptionDetails"].is_null(), "{expression}: {reported}");
        reported["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    pub(crate) fn wait_for(&mut self, expression: &str) {
        let end = Instant::now() + PATIENCE;
        while self.evaluate(&format!("Boolean({expression})")) != true {
            if Instant::now() > end {
                let page = self.evaluate("document.body.innerText");
                panic!(
                    "waited in vain for {expression}; complaints {:?}; the page shows\n{page}",
                    self.complaints
                );
            }
            std::thread::sleep(NAP);
        }
    }

    pub(crate) fn open(&mut self, url: &str) {
        self.call("Page.navigate", &json!({ "url": url }));
    }

    pub(crate) fn key(&mut self, key: &str) {
        let text = if key.chars().count() == 1 {
            key
        } else if key == "Enter" {
            "\r"
        } else {
            ""
        };
        let code = match key {
            "Enter" => 13,
            "Escape" => 27,
            "Tab" => 9,
            "Backspace" => 8,
            "ArrowLeft" => 37,
            "ArrowUp" => 38,
            "ArrowRight" => 39,
            "ArrowDown" => 40,
            " " => 32,
            _ => 0,
        };
        let mut parameters = json!({ "type": "keyDown", "key": key, "windowsVirtualKeyCode": code });
        if !text.is_empty() {
            parameters["text"] = json!(text);
        }
        self.call("Input.dispatchKeyEvent", &parameters);
        self.call(
            "Input.dispatchKeyEvent",
            &json!({ "type": "keyUp", "key": key, "windowsVirtualKeyCode": code }),
        );
    }

    /// Sets width and height in CSS pixels.
    pub(crate) fn resize(&mut self, width: u32, height: u32) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500 });
        self.call("Emulation.setDeviceMetricsOverride", &size);
    }

    /// Sets the preferred colour scheme: `light` or `dark`.
    pub(crate) fn prefer(&mut self, scheme: &str) {
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", &features);
    }

    /// Returns a screenshot in base64.
    pub(crate) fn picture(&mut self) -> String {
        self.call("Page.captureScreenshot", &json!({ "format": "png" }))["data"].as_str().unwrap().to_owned()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.session.clear();
        let _ = self.commands.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        let end = Instant::now() + Duration::from_secs(10);
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < end {
            std::thread::sleep(NAP);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn listen(answers: File) -> Receiver<Value> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut input = BufReader::new(answers);
        let mut message = Vec::new();
        while input.read_until(0, &mut message).is_ok_and(|count| count > 0) {
            message.pop();
            let reported = serde_json::from_slice(&message).unwrap_or(Value::Null);
            message.clear();
            if sender.send(reported).is_err() {
                return;
            }
        }
    });
    receiver
}
