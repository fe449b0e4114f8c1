//! Test cells in separate network namespaces, served by OpenAFS or by Cellar.

use anyhow::{Context, Result, bail, ensure};
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Returns the folder of the scripts that create namespaces and boot guests.
pub fn tools() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tools")
}

/// Returns the `cellar` program in this program's folder.
pub fn cellar_program() -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("cellar");
    ensure!(path.exists(), "{} is missing; `make interop` builds it", path.display());
    Ok(path)
}

/// Returns the search path for commands in cells; `cellar` is the one in this program's folder.
fn search_path() -> Result<OsString> {
    let program = cellar_program()?;
    let others = std::env::var_os("PATH").unwrap_or_default();
    let folders = program.parent().map(Path::to_owned).into_iter().chain(std::env::split_paths(&others));
    Ok(std::env::join_paths(folders)?)
}

/// Time limit for a command, in seconds.
const COMMAND_SECONDS: &str = "900";

/// A cell with this file in its folder is started with it, other cells with OpenAFS's configuration.
const CONFIGURATION: &str = "cellar.toml";

/// The software that serves a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// Debian's OpenAFS packages: the demand-attach file server and the other servers.
    OpenAfs,
    /// This project.
    Cellar,
}

/// Result of a command.
#[derive(Clone, Debug)]
pub struct Output {
    /// Exit status; -1 if a signal ended it.
    pub status: i32,
    /// Standard output, then standard error.
    pub text: String,
}

impl Output {
    /// Returns the text, or an error if the command failed.
    pub fn ok(self) -> Result<String> {
        ensure!(self.status == 0, "exit status {}:\n{}", self.status, self.text);
        Ok(self.text)
    }
}

/// A running cell; dropping it stops its servers and removes its files.
pub struct Cell {
    /// Name of its namespace and of its only host.
    pub name: &'static str,
    /// Its address on the bridge.
    pub address: &'static str,
    directory: TempDir,
    daemon: Option<Child>,
    /// The server's program; that of this program's folder if there is none.
    program: Option<PathBuf>,
    options: Vec<String>,
}

impl Cell {
    /// Starts a cell named `test.example` with one partition.
    pub fn start(server: Server, name: &'static str, address: &'static str) -> Result<Cell> {
        Cell::start_with(server, name, address, &[])
    }

    /// Starts a cell with additional options for the `openafs-cell` tool.
    pub fn start_with(
        server: Server,
        name: &'static str,
        address: &'static str,
        options: &[&str],
    ) -> Result<Cell> {
        if server == Server::OpenAfs {
            return Cell::prepare("dafs", name, address, options);
        }
        Cell::start_on(name, address, options, "true")
    }

    /// Starts a Cellar cell; `script` runs inside it before the server starts, to set up its partitions.
    pub fn start_on(
        name: &'static str,
        address: &'static str,
        options: &[&str],
        script: &str,
    ) -> Result<Cell> {
        let mut cell = Cell::prepare("none", name, address, options)?;
        cell.shell(script)?.ok().with_context(|| script.to_owned())?;
        cell.start_cellar()?;
        cell.tool(&["run", "pts", "createuser", "admin", "-id", "1", "-localauth"])?.ok()?;
        cell.run("pts adduser admin system:administrators -localauth")?.ok()?;
        Ok(cell)
    }

    /// Starts an OpenAFS file server on a new host, in the cell of `host`.
    pub fn start_joining(host: &Cell, name: &'static str, address: &'static str) -> Result<Cell> {
        let cell = Cell::prepare_joining(host, name, address)?;
        let programs = ["dafileserver -L", "davolserver", "salvageserver", "dasalvager"];
        let programs = programs.map(|program| format!("'/usr/lib/openafs/{program}'")).join(" ");
        cell.shell(&format!(
            "/usr/sbin/bosserver && for i in $(seq 300); do \
             bos create {address} dafs dafs {programs} -localauth && exit; sleep 0.1; done; exit 1"
        ))?
        .ok()
        .context("starting OpenAFS's file server")?;
        cell.wait_until_joined(host)?;
        Ok(cell)
    }

    /// Starts a Cellar file server on a new host, in the cell of `host`. The first database server in its
    /// CellServDB, `nobody`, does not exist.
    pub fn start_cellar_joining(
        host: &Cell,
        name: &'static str,
        address: &'static str,
        nobody: &str,
    ) -> Result<Cell> {
        let cell = Cell::prepare_joining(host, name, address)?;
        let servers = cell.path().join("etc/server/CellServDB");
        let text = std::fs::read_to_string(&servers)?;
        let (head, rest) = text.split_once('\n').context("an empty CellServDB")?;
        std::fs::write(&servers, format!("{head}\n{nobody} #nobody\n{rest}"))?;
        cell.join_with_cellar(host)
    }

    /// Starts a Cellar file server on a new host, with the same CellServDB as `host`.
    pub fn start_cellar_like(host: &Cell, name: &'static str, address: &'static str) -> Result<Cell> {
        Cell::prepare_joining(host, name, address)?.join_with_cellar(host)
    }

    /// Starts a Cellar file server on a new host, in the cell of `host`, after `script`, in which `$OWN` is the
    /// new host's folder. Does not wait until the server is registered.
    pub fn start_cellar_after(
        host: &Cell,
        name: &'static str,
        address: &'static str,
        script: &str,
    ) -> Result<Cell> {
        let mut cell = Cell::prepare_joining(host, name, address)?;
        let own = cell.path().display().to_string();
        cell.shell(&format!("OWN='{own}'\n{script}"))?.ok().with_context(|| script.to_owned())?;
        cell.start_cellar_alone()?;
        Ok(cell)
    }

    fn join_with_cellar(mut self, host: &Cell) -> Result<Cell> {
        self.start_cellar_alone()?;
        self.wait_until_joined(host).with_context(|| self.cellar_log())?;
        Ok(self)
    }

    /// Creates a host without servers that is in the cell of `host` and has its key.
    pub(crate) fn prepare_joining(host: &Cell, name: &'static str, address: &'static str) -> Result<Cell> {
        let cell = Cell::prepare("none", name, address, &[])?;
        for file in [
            "etc/ThisCell",
            "etc/CellServDB",
            "etc/server/ThisCell",
            "etc/server/CellServDB",
            "etc/server/KeyFileExt",
            "rxkad.keytab",
        ] {
            std::fs::copy(host.path().join(file), cell.path().join(file)).context(file)?;
        }
        let security = "etc/server/cellar-security.toml";
        if host.path().join(security).exists() {
            std::fs::copy(host.path().join(security), cell.path().join(security)).context(security)?;
        }
        Ok(cell)
    }

    fn wait_until_joined(&self, host: &Cell) -> Result<()> {
        for _ in 0..300 {
            let listed = host.run("vos listaddrs -noresolve -localauth")?.text;
            let answers = host.run(&format!("vos listpart {} -localauth", self.address))?.status == 0;
            if answers && listed.lines().any(|line| line.trim() == self.address) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        bail!("the file server {} does not join the cell", self.address)
    }

    /// Starts a Cellar cell with these lines in its configuration file, after the sections of cell, server
    /// and partitions.
    pub fn start_configured(name: &'static str, address: &'static str, lines: &str) -> Result<Cell> {
        let mut cell = Cell::prepare_configured(name, address, lines)?;
        cell.start_cellar()?;
        Ok(cell)
    }

    /// [`Cell::start_configured`] without starting the server.
    pub fn prepare_configured(name: &'static str, address: &'static str, lines: &str) -> Result<Cell> {
        let cell = Cell::prepare("none", name, address, &[])?;
        cell.configure(address, "", lines)?;
        Ok(cell)
    }

    /// Starts a Cellar file server on a new host, in the cell of `host`, with these lines in its
    /// configuration file.
    pub fn start_configured_joining(
        host: &Cell,
        name: &'static str,
        address: &'static str,
        lines: &str,
    ) -> Result<Cell> {
        let cell = Cell::prepare_joining(host, name, address)?;
        cell.configure(host.address, "roles = [\"fs\", \"vol\", \"bos\"]", lines)?;
        cell.join_with_cellar(host)
    }

    /// Creates a host in the cell of `host` for a Cellar file server with these partitions and further sections.
    pub fn prepare_configured_joining(
        host: &Cell,
        name: &'static str,
        address: &'static str,
        partitions: &str,
    ) -> Result<Cell> {
        let cell = Cell::prepare_joining(host, name, address)?;
        cell.configure_partitions(host.address, "roles = [\"fs\", \"vol\", \"bos\"]", partitions)?;
        Ok(cell)
    }

    /// Writes the configuration file, with the address of the databases, additional lines for the server's
    /// section, and further sections.
    fn configure(&self, databases: &str, server: &str, lines: &str) -> Result<()> {
        self.configure_partitions(databases, server, &format!("[partitions]\na = \"/vicepa\"\n{lines}"))
    }

    /// Writes the configuration file, with the address of the databases, additional lines for the server's section, and the
    /// sections of partitions and others.
    pub(crate) fn configure_partitions(&self, databases: &str, server: &str, partitions: &str) -> Result<()> {
        let text = format!(
            "[cell]\nname = \"test.example\"\nkeyfile = \"/etc/openafs/server/KeyFileExt\"\n\
             userlist = \"/etc/openafs/server/UserList\"\ndatabase_servers = [\"{databases}\"]\n\
             [server]\nannounce = [\"{}\"]\nstate = \"/var/lib/openafs/db\"\n{server}\n\
             {partitions}\n",
            self.address
        );
        Ok(std::fs::write(self.path().join(CONFIGURATION), text)?)
    }

    /// Returns the path of Cellar's configuration file.
    pub fn configuration(&self) -> String {
        self.path().join(CONFIGURATION).display().to_string()
    }

    /// Makes OpenAFS's tools on this host ask these database servers only.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn use_databases(&self, servers: &[(&str, &str)]) -> Result<()> {
        let lines: Vec<String> =
            servers.iter().map(|(name, address)| format!("{address} #{name}\n")).collect();
        for file in ["etc/CellServDB", "etc/server/CellServDB"] {
            std::fs::write(self.path().join(file), format!(">test.example\n{}", lines.concat()))
                .context(file)?;
        }
        Ok(())
    }

    /// Creates the namespaces, configuration and keys, and starts the servers of `kind`.
    pub(crate) fn prepare(
        kind: &str,
        name: &'static str,
        address: &'static str,
        options: &[&str],
    ) -> Result<Cell> {
        let directory = tempfile::Builder::new().prefix("cellar-interop-").tempdir()?;
        let options = options.iter().map(|&option| option.into()).collect();
        let cell = Cell { name, address, directory, daemon: None, program: None, options };
        crate::ending::begun(cell.path());
        let mut arguments = vec!["-n", name, "-a", address, "-t", kind];
        arguments.extend(cell.options.iter().map(String::as_str));
        arguments.push("start");
        cell.tool(&arguments)?.ok().with_context(|| format!("cannot start the cell {name}"))?;
        Ok(cell)
    }

    /// Returns the folder of the cell's files: `etc`, `var`, `vicepa`, `rxkad.keytab` ...
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    fn tool(&self, arguments: &[&str]) -> Result<Output> {
        let mut command = Command::new(tools().join("openafs-cell"));
        command.arg("-d").arg(self.path()).args(arguments).env("PATH", search_path()?).stdin(Stdio::null());
        // The process that holds the namespaces would keep a pipe open forever, so the output goes to a file.
        let log = tempfile::NamedTempFile::new()?;
        let (stdout, stderr) = outputs(log.path())?;
        let status = command.stdout(stdout).stderr(stderr).status()?;
        let text = String::from_utf8_lossy(&std::fs::read(log.path())?).into_owned();
        Ok(Output { status: status.code().unwrap_or(-1), text })
    }

    /// Runs a command inside the cell, given as words separated by blanks; `cellar` is the program under
    /// test.
    pub fn run(&self, command: &str) -> Result<Output> {
        let words: Vec<&str> = command.split_whitespace().collect();
        self.run_words(&words)
    }

    /// Runs a command inside the cell.
    pub fn run_words(&self, words: &[&str]) -> Result<Output> {
        let mut arguments = vec!["run", "timeout", COMMAND_SECONDS];
        arguments.extend(words);
        self.tool(&arguments)
    }

    /// Runs a shell command inside the cell.
    pub fn shell(&self, script: &str) -> Result<Output> {
        self.tool(&["run", "bash", "-c", script])
    }

    /// Starts Cellar with the cell's OpenAFS configuration, and waits until it serves.
    pub fn start_cellar(&mut self) -> Result<()> {
        self.start_cellar_alone()?;
        self.wait_until_serving()
    }

    /// Chooses the program that is started as Cellar's server from now on. The file is named `cellar`.
    pub fn use_program(&mut self, program: PathBuf) {
        self.program = Some(program);
    }

    /// Starts Cellar without waiting.
    pub fn start_cellar_alone(&mut self) -> Result<()> {
        self.begin_cellar(&[])
    }

    /// Starts Cellar under a supervisor, and waits until it serves.
    pub fn start_cellar_supervised(&mut self) -> Result<()> {
        self.begin_cellar(&["--supervise"])?;
        self.wait_until_serving()
    }

    /// Kills the server under a supervisor, and waits until the supervisor has started another.
    pub fn kill_supervised(&self) -> Result<()> {
        let supervisor = self.server_pid()?;
        let old = daemon(supervisor)?.context("the supervisor has no server")?;
        let kill = Command::new("kill").arg("-KILL").arg(old.to_string()).status()?;
        ensure!(kill.success(), "kill -KILL {old}: {kill}");
        let deadline = Instant::now() + Duration::from_secs(30);
        while Instant::now() < deadline {
            if daemon(supervisor)?.is_some_and(|new| new != old) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("the supervisor started no other server:\n{}", self.cellar_log())
    }

    fn begin_cellar(&mut self, options: &[&str]) -> Result<()> {
        ensure!(self.daemon.is_none(), "Cellar runs already");
        let program = self.program.clone().map_or_else(cellar_program, Ok)?;
        let log = File::options().create(true).append(true).open(self.path().join("cellar.log"))?;
        let configuration = self.path().join(CONFIGURATION);
        let mut command = Command::new(tools().join("openafs-cell"));
        command.arg("-d").arg(self.path()).arg("run").arg(&program).arg("serve").args(options);
        if configuration.exists() {
            command.arg("--config").arg(configuration);
        }
        let child = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?;
        self.daemon = Some(child);
        Ok(())
    }

    /// Waits until the server has a partition.
    ///
    /// # Errors
    /// After a minute.
    pub fn await_partition(&self, name: &str) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(60);
        let list = format!("vos listpart {} -localauth", self.address);
        while Instant::now() < deadline {
            if self.run(&list)?.text.contains(name) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        bail!("{name} is not there:\n{}", self.cellar_log())
    }

    fn wait_until_serving(&mut self) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(60);
        while Instant::now() < deadline {
            if let Some(status) = self.daemon.as_mut().context("no daemon")?.try_wait()? {
                bail!("cellar serve ended with {status}:\n{}", self.cellar_log());
            }
            let registered = self.run("vos listaddrs -localauth")?;
            let is_registered = registered.status == 0 && !registered.text.trim().is_empty();
            // A server that is still registered may not be running: the list of addresses came from another
            // one.
            if is_registered && self.run(&format!("vos listpart {} -localauth", self.address))?.status == 0 {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        bail!("cellar serve does not answer:\n{}", self.cellar_log())
    }

    /// Returns the last 40 lines of Cellar's log.
    pub fn cellar_log(&self) -> String {
        let text = std::fs::read_to_string(self.path().join("cellar.log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// Returns the process id of the server in this program's process namespace.
    ///
    /// # Errors
    /// If the server is not running.
    pub fn server_pid(&self) -> Result<u32> {
        let child = self.daemon.as_ref().context("Cellar does not run")?;
        daemon(child.id())?.context("Cellar has ended already")
    }

    /// Stops all threads of Cellar until [`resume_cellar`](Self::resume_cellar).
    pub fn stop_cellar(&self) -> Result<()> {
        kill("STOP", &[self.server_pid()?])
    }

    /// Lets Cellar go on. `nsenter`, which has started it, has stopped with it.
    pub fn resume_cellar(&self) -> Result<()> {
        let child = self.daemon.as_ref().context("Cellar does not run")?;
        kill("CONT", &descendants(child.id())?)
    }

    /// Sends `signal` (`TERM`, `KILL` ...) to Cellar and waits until it exits.
    pub fn end_cellar(&mut self, signal: &str) -> Result<()> {
        let mut child = self.daemon.take().context("Cellar does not run")?;
        let pid = daemon(child.id())?.context("Cellar has ended already")?;
        kill(signal, &[pid])?;
        let deadline = Instant::now() + Duration::from_secs(30);
        while Instant::now() < deadline {
            if child.try_wait()?.is_some() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        child.kill()?;
        child.wait()?;
        bail!("Cellar did not end within 30 s of SIG{signal}:\n{}", self.cellar_log())
    }

    /// Whether Cellar has exited without [`Cell::end_cellar`]. If so, it can be started again.
    pub fn has_ended(&mut self) -> Result<bool> {
        let has_ended = self.daemon.as_mut().context("Cellar does not run")?.try_wait()?.is_some();
        if has_ended {
            self.daemon = None;
        }
        Ok(has_ended)
    }

    /// Mounts the cell with `afsd.fuse`.
    pub fn mount_fuse(&self, directory: &Path) -> Result<()> {
        self.tool(&["mount", directory.to_str().context("path")?])?.ok().map(drop)
    }

    /// Returns a folder for files that scripts keep outside the cell.
    pub fn scratch(&self) -> Result<PathBuf> {
        let path = self.path().join("scratch");
        std::fs::create_dir_all(&path)?;
        Ok(path)
    }

    /// Creates a volume whose root directory anyone may read and write.
    pub fn open_volume(&self, server: Server, volume: &str) -> Result<()> {
        match server {
            Server::OpenAfs => self.tool(&["volume", volume])?.ok().map(drop),
            Server::Cellar => {
                let create = format!("cellar volume create {volume} --quota 0 --acl system:anyuser=rlidwka");
                self.run(&create)?.ok().map(drop)
            }
        }
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        if self.daemon.is_some() {
            let _ = self.end_cellar("TERM");
        }
        let mut arguments: Vec<&str> = self.options.iter().map(String::as_str).collect();
        arguments.push("stop");
        crate::ending::end(self.path(), || _ = self.tool(&arguments));
    }
}

/// Returns the server among the descendants of the process that started it in its namespaces. Other Cellar
/// programs may run there too.
fn daemon(ancestor: u32) -> Result<Option<u32>> {
    let is_cellar = |pid: &u32| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "cellar")
    };
    Ok(descendants(ancestor)?.into_iter().find(is_cellar))
}

/// Returns the processes below one, each before its own.
fn descendants(ancestor: u32) -> Result<Vec<u32>> {
    let children = Command::new("pgrep").args(["-P", &ancestor.to_string()]).output()?;
    let mut all = Vec::new();
    for child in String::from_utf8_lossy(&children.stdout).split_whitespace() {
        let child = child.parse()?;
        all.push(child);
        all.extend(descendants(child)?);
    }
    Ok(all)
}

/// Sends a signal to processes.
fn kill(signal: &str, processes: &[u32]) -> Result<()> {
    let mut command = Command::new("kill");
    command.arg(format!("-{signal}")).args(processes.iter().map(u32::to_string));
    let status = command.status()?;
    ensure!(status.success(), "kill -{signal} {processes:?}: {status}");
    Ok(())
}

/// Kills a process and all that it has started in its namespaces, and waits for it.
pub fn kill_tree(child: &mut Child) {
    // One that has ended in the meantime is no error.
    if let Ok(below) = descendants(child.id())
        && !below.is_empty()
    {
        _ = kill("KILL", &below);
    }
    _ = child.kill();
    _ = child.wait();
}

/// A Cellar program that runs next to the servers, until [`Beside::end`].
pub struct Beside {
    child: Child,
    log: tempfile::NamedTempFile,
}

impl Cell {
    /// Starts the `cellar` program in the cell with these arguments, in addition to the server.
    pub fn start_beside(&self, arguments: &[&str]) -> Result<Beside> {
        let log = tempfile::NamedTempFile::new()?;
        let mut command = Command::new(tools().join("openafs-cell"));
        command.arg("-d").arg(self.path()).arg("run").arg(cellar_program()?).args(arguments);
        let (stdout, stderr) = outputs(log.path())?;
        let child = command.stdin(Stdio::null()).stdout(stdout).stderr(stderr).spawn()?;
        Ok(Beside { child, log })
    }
}

impl Beside {
    /// Whether the program has exited.
    pub fn has_ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Waits until the program exits.
    pub fn wait(&mut self) -> Result<Output> {
        let status = self.child.wait()?.code().unwrap_or(-1);
        Ok(Output { status, text: String::from_utf8_lossy(&std::fs::read(self.log.path())?).into_owned() })
    }

    /// Sends SIGTERM, waits until the program exits, and returns its output.
    pub fn end(&mut self) -> Result<String> {
        if let Some(pid) = daemon(self.child.id())? {
            Command::new("kill").arg(pid.to_string()).status()?;
        }
        self.child.wait()?;
        Ok(String::from_utf8_lossy(&std::fs::read(self.log.path())?).into_owned())
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// Opens one file for both outputs of a program, so that neither overwrites the other.
fn outputs(path: &Path) -> Result<(File, File)> {
    let file = File::options().append(true).open(path)?;
    Ok((file.try_clone()?, file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn neither_output_writes_over_the_other() {
        let log = tempfile::NamedTempFile::new().unwrap();
        let (mut stdout, mut stderr) = outputs(log.path()).unwrap();
        stderr.write_all(b"a warning\n").unwrap();
        stdout.write_all(b"an answer\n").unwrap();
        stderr.write_all(b"a fault\n").unwrap();
        assert_eq!(std::fs::read_to_string(log.path()).unwrap(), "a warning\nan answer\na fault\n");
    }
}
