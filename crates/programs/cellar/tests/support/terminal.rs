//! A terminal for a program, through `script` of util-linux: reads its screen and sends keys.

use super::PATIENCE;
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Start and end of a screen; the program writes the whole screen each time.
const BEGIN: &str = "\x1b[H";
const END: &str = "\x1b[J";

/// A program in a terminal; dropping it ends the program.
pub(crate) struct Terminal {
    script: Child,
    keys: ChildStdin,
    written: Arc<Mutex<String>>,
    reading: Option<JoinHandle<()>>,
}

impl Terminal {
    /// Starts the program in a terminal of this size.
    pub(crate) fn start(program: &Command, lines: usize, columns: usize) -> Terminal {
        let words = [program.get_program()].into_iter().chain(program.get_args());
        let words: Vec<String> = words.map(|word| format!("'{}'", word.to_str().unwrap())).collect();
        let command = format!("stty rows {lines} cols {columns}; exec {}", words.join(" "));
        let mut script = Command::new("script");
        script.args(["-qefc", &command, "/dev/null"]).env("TERM", "xterm");
        script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut script = script.spawn().expect("`script` of util-linux");
        let (keys, mut output) = (script.stdin.take().unwrap(), script.stdout.take().unwrap());
        let written = Arc::new(Mutex::new(String::new()));
        let text = written.clone();
        let reading = thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut buffer) {
                text.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..count]));
            }
        });
        Terminal { script, keys, written, reading: Some(reading) }
    }

    /// Returns the lines of the last complete screen, without highlighting; empty until there is one.
    pub(crate) fn screen(&self) -> Vec<String> {
        let written = self.written.lock().unwrap();
        let whole = written.rfind(END).map_or("", |end| &written[..end]);
        let Some(begin) = whole.rfind(BEGIN) else { return vec![] };
        let plain = ["\x1b[7m", "\x1b[0m", "\x1b[K"]
            .iter()
            .fold(whole[begin + BEGIN.len()..].to_owned(), |text, escape| text.replace(escape, ""));
        plain.split("\r\n").map(str::to_owned).collect()
    }

    /// Waits for a screen with this property.
    pub(crate) fn wait_for(&self, what: &str, is_there: impl Fn(&[String]) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let screen = self.screen();
            if screen.len() > 4 && is_there(&screen) {
                return;
            }
            assert!(Instant::now() < deadline, "{what} did not come:\n{}", screen.join("\n"));
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Types keys.
    pub(crate) fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).and_then(|()| self.keys.flush()).unwrap();
    }

    /// Types keys that end the program, and returns everything that it has written.
    pub(crate) fn end(mut self, keys: &str) -> String {
        self.press(keys);
        let deadline = Instant::now() + PATIENCE;
        while self.script.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "{keys:?} does not end it");
            thread::sleep(Duration::from_millis(20));
        }
        assert!(self.script.wait().unwrap().success());
        self.reading.take().unwrap().join().unwrap();
        self.written.lock().unwrap().clone()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}
