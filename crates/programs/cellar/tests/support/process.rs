//! A server in a separate process, which can be killed.

use super::place::{Place, cellar};
use super::soon;
use std::ops::Deref;
use std::process::{Child, Command, Stdio};

/// A server that runs until it is dropped. It dereferences to its [`Place`].
pub(crate) struct Process {
    child: Child,
    place: Place,
}

impl Process {
    /// Starts a server and waits until it answers.
    pub(crate) fn start(place: Place) -> Process {
        let mut process = Process::begin(place, &[]);
        process.wait();
        process
    }

    /// Starts a server with these environment variables, without waiting.
    pub(crate) fn begin(place: Place, environment: &[(&str, &str)]) -> Process {
        let mut command = serving(&place);
        command.envs(environment.iter().copied());
        Process { child: command.spawn().unwrap(), place }
    }

    fn wait(&mut self) {
        let on = self.place.address.to_string();
        soon(&format!("{on} serves"), || {
            assert!(self.child.try_wait().unwrap().is_none(), "{on} has ended");
            self.place.output(&["volume", "list", "--on", &on]).status.success().then_some(())
        });
    }

    /// Returns the whole lines of the server's log.
    pub(crate) fn log(&self) -> String {
        let path = self.settings().log_path.join("CellarLog");
        let mut text = std::fs::read_to_string(path).unwrap_or_default();
        text.truncate(text.rfind('\n').unwrap_or(0));
        text
    }

    /// Returns the PID.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends it in order, as a service manager does.
    pub(crate) fn terminate(&mut self) {
        let id = self.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        self.child.wait().unwrap();
    }

    pub(crate) fn restart(&mut self) {
        self.child = serving(&self.place).spawn().unwrap();
        self.wait();
    }
}

fn serving(place: &Place) -> Command {
    let mut command = cellar(&["serve", "--config"]);
    command.arg(&place.config).env("HOME", place.folder());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

impl Deref for Process {
    type Target = Place;

    fn deref(&self) -> &Place {
        &self.place
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
