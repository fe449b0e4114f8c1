//! The Debian packages: made twice, checked, and installed in a root of their own that systemd boots, where a
//! cell is served, upgraded under load, stopped by the watchdog, started by a socket, removed and purged.

use crate::Test;
use crate::tests::{own_file, wait_for};
use afs_format::keyfile::{KeyType, Secret, TypedKey, write_extended};
use anyhow::{Context, Result, ensure};
use interop::cell::{Output, cellar_program, tools};
use interop::means::{Means, debian_root};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

const NEEDS: &[Means] = &[Means::Netns, Means::Packages];

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test { name: "packages-made", needs: NEEDS, run: made },
        Test { name: "packages-installed", needs: NEEDS, run: installed },
        Test { name: "packages-manifests", needs: NEEDS, run: manifests },
    ]
}

/// Version of the package that is upgraded; less than any release.
const OLD: &str = "0.0.1-1";
/// Version of the package that it is upgraded to.
const NEW: &str = "0.0.2-1";
/// Upper limit for the stripped program, with partitions in buckets: of a release build, and of the tests' profile.
const PROGRAM_BYTES_MAX: u64 = if cfg!(debug_assertions) { 60_000_000 } else { 45_000_000 };
/// Upper limit for the exposure of the unit that `systemd-analyze security` reports, in tenths.
const EXPOSURE_MAX: &str = "25";
/// aes256-cts-hmac-sha1-96.
const AES256: u32 = 18;
/// Address of the server. OpenAFS's tools refuse that of the loopback interface.
const ADDRESS: &str = "10.99.31.1";
const LIMIT: Duration = Duration::from_secs(60);

/// The packages are the same bytes each time, and without errors; the unit and the size stay below their
/// limits.
fn made() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (first, second) = (folder.path().join("1"), folder.path().join("2"));
    for folder in [&first, &second] {
        package(NEW, "gzip", folder)?;
    }
    // cellar-dbg, cellar.
    let names = names_in(&first)?;
    ensure!(names.len() == 2, "expected two packages: {names:?}");
    for name in &names {
        ensure!(fs::read(first.join(name))? == fs::read(second.join(name))?, "{name}: two builds differ");
    }
    let files: Vec<PathBuf> = names.iter().map(|name| first.join(name)).collect();
    output(Command::new("lintian").arg("--no-cfg").args(["--fail-on", "error"]).args(&files))?.ok()?;

    let root = folder.path().join("root");
    output(Command::new("dpkg-deb").arg("-x").arg(&files[1]).arg(&root))?.ok()?;
    let bytes = fs::metadata(root.join("usr/bin/cellar"))?.len();
    println!("the program has {bytes} bytes");
    ensure!(bytes < PROGRAM_BYTES_MAX, "the program has {bytes} bytes, {PROGRAM_BYTES_MAX} at most");
    let manual = names_in(&root.join("usr/share/man/man1"))?;
    for page in ["cellar.1.gz", "cellar-serve.1.gz", "cellar-volume-create.1.gz", "cellar-doctor.1.gz"] {
        ensure!(manual.iter().any(|name| name == page), "no page {page} among {manual:?}");
    }
    let unit = root.join("lib/systemd/system/cellar.service");
    let analyze = ["security", "--offline=yes", "--no-pager", "--threshold", EXPOSURE_MAX];
    let report = output(Command::new("systemd-analyze").args(analyze).arg(&unit))?.ok()?;
    println!("{}", report.lines().last().unwrap_or_default());
    Ok(())
}

/// Makes the packages of the program under test, with this version.
fn package(version: &str, compression: &str, folder: &Path) -> Result<()> {
    let mut command = Command::new(own_file("../../../scripts/package"));
    command.arg(cellar_program()?).arg(folder).env("PACKAGE_VERSION", version);
    command.env("PACKAGE_COMPRESSION", compression).env("SOURCE_DATE_EPOCH", "1700000000");
    output(&mut command)?.ok().map(drop).context("scripts/package")
}

/// Returns the names of the files in a folder, in order.
fn names_in(folder: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names = entries.collect::<Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

fn output(command: &mut Command) -> Result<Output> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{command:?}"))?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    Ok(Output { status: output.status.code().unwrap_or(-1), text })
}

/// Checks that the container files use valid fields and resolve all references, and that the configuration in
/// them is valid up to the missing key.
fn manifests() -> Result<()> {
    let mut check = Command::new(tools().join("check-manifests"));
    let printed = output(check.arg(own_file("../../..")))?.ok()?;
    let configurations: Vec<(&str, &str)> =
        printed.split("== ").skip(1).filter_map(|part| part.split_once('\n')).collect();
    ensure!(configurations.len() == 2, "expected two configurations:\n{printed}");
    let folder = tempfile::tempdir()?;
    for (name, text) in configurations {
        let path = folder.path().join("cellar.toml");
        fs::write(&path, text)?;
        let refusal = cellar_config::file::load(&path).err().map(|error| format!("{error:#}"));
        let refusal = refusal.with_context(|| format!("{name} works without its key"))?;
        ensure!(refusal.contains("/key"), "{name}: {refusal}");
    }
    Ok(())
}

/// A root of Debian that systemd has booted, in the network of this process.
struct Machine {
    folder: TempDir,
    container: Child,
    /// Process id of its init.
    init: String,
}

impl Machine {
    fn boot() -> Result<Machine> {
        let folder = tempfile::Builder::new().prefix("cellar-interop-root-").tempdir()?;
        let root = folder.path().join("root");
        fs::create_dir(&root)?;
        // /dev is made by systemd-nspawn.
        let unpack = ["--exclude=./dev/*", "-C"];
        output(Command::new("tar").arg("-xf").arg(debian_root()?).args(unpack).arg(&root))?.ok()?;
        let log = File::create(folder.path().join("console"))?;
        // It stops the root if this process ends.
        let container = Command::new("setpriv")
            .args(["--pdeathsig", "TERM", "systemd-nspawn"])
            .args(["--quiet", "--register=no", "--keep-unit", "--boot", "--console=pipe", "-D"])
            .arg(&root)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let mut machine = Machine { folder, container, init: String::new() };
        let console = machine.folder.path().join("console");
        wait_for(LIMIT, || {
            if let Some(status) = machine.container.try_wait()? {
                let printed = fs::read_to_string(&console).unwrap_or_default();
                ensure!(false, "systemd-nspawn ended with {status}:\n{printed}");
            }
            let child = output(Command::new("pgrep").args(["-P", &machine.container.id().to_string()]))?;
            child.text.lines().next().unwrap_or_default().clone_into(&mut machine.init);
            Ok(!machine.init.is_empty()
                && machine.run("systemctl is-system-running")?.text.trim() == "running")
        })
        .context("systemd does not boot")?;
        Ok(machine)
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    /// Runs a command inside, given as words separated by blanks.
    fn run(&self, command: &str) -> Result<Output> {
        let mut inside = Command::new("nsenter");
        inside.args(["-t", &self.init, "-m", "-u", "-i", "-p", "-C", "--", "env", "LC_ALL=C"]);
        inside.args(["DEBIAN_FRONTEND=noninteractive"]).args(command.split_whitespace());
        output(&mut inside)
    }

    /// Runs a command inside that must succeed.
    fn must(&self, command: &str) -> Result<String> {
        self.run(command)?.ok().with_context(|| {
            let journal = self.run("journalctl --no-pager -n 40 -u cellar").map(|output| output.text);
            format!("{command}\n{}", journal.unwrap_or_default())
        })
    }

    fn install(&self, version: &str) -> Result<String> {
        self.must(&format!("apt-get install -y /packages/{version}/cellar_{version}_{}.deb", architecture()?))
    }

    /// Returns a property of a unit.
    fn property(&self, unit: &str, name: &str) -> Result<String> {
        Ok(self.must(&format!("systemctl show -P {name} {unit}"))?.trim().to_owned())
    }

    /// Writes a drop-in for a unit.
    fn drop_in(&self, unit: &str, text: &str) -> Result<()> {
        let folder = self.root().join("etc/systemd/system").join(format!("{unit}.d"));
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("test.conf"), text)?;
        self.must("systemctl daemon-reload").map(drop)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Everything inside ends with its first process, and so does systemd-nspawn.
        let _ = output(Command::new("kill").args(["-KILL", &self.init]));
        let _ = self.container.wait();
    }
}

fn architecture() -> Result<String> {
    Ok(output(Command::new("dpkg").arg("--print-architecture"))?.ok()?.trim().to_owned())
}

/// Writes the configuration of OpenAFS's tools on this side, with the cell's key, over the machine's.
fn configure_tools(folder: &Path, keys: &[u8]) -> Result<()> {
    let server = folder.join("server");
    fs::create_dir_all(&server)?;
    for folder in [folder, &server] {
        fs::write(folder.join("ThisCell"), "test.example\n")?;
        fs::write(folder.join("CellServDB"), format!(">test.example\n{ADDRESS} #server\n"))?;
    }
    fs::write(server.join("KeyFileExt"), keys)?;
    output(Command::new("mount").arg("--bind").arg(folder).arg("/etc/openafs"))?.ok().map(drop)
}

/// Runs one of OpenAFS's tools on this side.
fn tool(command: &str) -> Result<Output> {
    let mut words = command.split_whitespace();
    output(Command::new("timeout").args(["60", words.next().context("no command")?]).args(words))
}

fn list_volumes() -> Result<Output> {
    tool(&format!("vos listvol {ADDRESS} -noauth"))
}

/// A writer on this side, whose every call must succeed.
struct Writer {
    child: Child,
    log: PathBuf,
}

impl Writer {
    fn start(folder: &Path, done: u64, until: u64) -> Result<Writer> {
        let log = folder.join("writer");
        let file = File::create(&log)?;
        let child = Command::new(std::env::current_exe()?)
            .args(["write", ADDRESS, "work", "1", &done.to_string(), &until.to_string()])
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()?;
        Ok(Writer { child, log })
    }

    /// Returns the number of steps that succeeded.
    fn done(&mut self) -> Result<u64> {
        let printed = fs::read_to_string(&self.log)?;
        if let Some(status) = self.child.try_wait()? {
            ensure!(status.success(), "a call failed; the writer ended with {status}:\n{printed}");
        }
        let whole = printed.rfind('\n').map_or("", |end| &printed[..end]);
        let done = whole.lines().filter_map(|line| line.strip_prefix("done ")?.parse().ok()).next_back();
        Ok(done.unwrap_or(0))
    }

    fn wait_for_steps(&mut self, steps: u64) -> Result<u64> {
        let start = self.done()?;
        wait_for(LIMIT, || Ok(self.done()? >= start + steps)).context("the writer makes no progress")?;
        self.done()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn installed() -> Result<()> {
    output(Command::new("ip").args(["address", "add", ADDRESS, "dev", "lo"]))?.ok()?;
    let machine = Machine::boot()?;
    for version in [OLD, NEW] {
        package(version, "none", &machine.root().join("packages").join(version))?;
    }
    let scratch = tempfile::tempdir()?;
    let secret = Secret::new(&[7; 32]);
    let key = TypedKey { key_type: KeyType::RxkadKerberos5, kvno: 1, subtype: AES256, secret };
    let keys = write_extended(&[key]);
    configure_tools(scratch.path(), &keys)?;

    let said = machine.install(OLD)?;
    ensure!(said.contains("configure the cell in /etc/cellar/cellar.toml"), "apt says:\n{said}");
    ensure!(machine.run("systemctl is-enabled cellar")?.text.trim() == "disabled", "enabled by itself");
    configure(&machine, &keys)?;
    machine.must("systemctl enable --now cellar")?;
    check_privileges(&machine)?;
    serve(&machine)?;
    upgrade(&machine, scratch.path())?;
    be_watched(&machine)?;
    start_by_socket(&machine)?;
    leave(&machine)
}

/// Does what the comments of the default configuration say.
fn configure(machine: &Machine, keys: &[u8]) -> Result<()> {
    let path = machine.root().join("etc/cellar/cellar.toml");
    let text = fs::read_to_string(&path)?.replace("\"example.org\"", "\"test.example\"");
    fs::write(&path, text.replace("#bind = [\"192.0.2.1\"]", &format!("bind = [\"{ADDRESS}\"]")))?;
    fs::write(machine.root().join("etc/cellar/KeyFileExt"), keys)?;
    machine.must("systemd-tmpfiles --create cellar.conf")?;
    machine.must("install -d -o cellar -g cellar -m 700 /vicepa").map(drop)
}

/// The server runs as its user, without capabilities, and no other user reads its files.
fn check_privileges(machine: &Machine) -> Result<()> {
    let pid = machine.property("cellar", "MainPID")?;
    let status = machine.must(&format!("cat /proc/{pid}/status"))?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("?").trim();
    for name in ["CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        ensure!(field(name) == "0000000000000000", "{name} {}", field(name));
    }
    ensure!(field("NoNewPrivs:") == "1" && field("Seccomp:") == "2", "{status}");
    let user = machine.must("id -u cellar")?;
    ensure!(field("Uid:").split_whitespace().all(|id| id == user.trim()), "{status}");
    let modes =
        machine.must("stat -c %a-%U /etc/cellar /etc/cellar/KeyFileExt /var/lib/cellar /var/log/cellar")?;
    ensure!(modes == "750-root\n600-cellar\n700-cellar\n700-cellar\n", "{modes}");
    Ok(())
}

/// OpenAFS's tools and Cellar's own use the server.
fn serve(machine: &Machine) -> Result<()> {
    tool(&format!("vos create {ADDRESS} a tried -localauth"))?.ok()?;
    tool("pts createuser ann -localauth")?.ok()?;
    let cellar = |words: &str| {
        machine.must(&format!("runuser -u cellar -- cellar {words} --config /etc/cellar/cellar.toml"))
    };
    cellar("volume create work --quota 0 --acl system:anyuser=rlidwka")?;
    let listed = list_volumes()?.ok()?;
    ensure!(listed.contains("tried") && listed.contains("work"), "{listed}");
    let listed = cellar("user list")?;
    ensure!(listed.contains("ann"), "{listed}");
    Ok(())
}

/// A writer whose calls all succeed writes before, during and after the upgrade.
fn upgrade(machine: &Machine, scratch: &Path) -> Result<()> {
    let before = machine.property("cellar", "MainPID")?;
    let mut writer = Writer::start(scratch, 0, u64::MAX)?;
    writer.wait_for_steps(50)?;
    machine.install(NEW)?;
    let after = machine.property("cellar", "MainPID")?;
    ensure!(before != after, "the old server still runs");
    ensure!(machine.property("cellar", "ActiveState")? == "active", "the new server does not run");
    let done = writer.wait_for_steps(50)?;
    drop(writer);
    let version = machine.must("dpkg-query -W -f ${Version} cellar")?;
    ensure!(version == NEW, "{version}");
    // The last step may have been acknowledged after the count was read; the next writer compares with both.
    let log = fs::read_to_string(scratch.join("writer"))?;
    let acknowledged = log.lines().filter_map(|line| line.strip_prefix("done ")?.parse().ok()).next_back();
    let acknowledged: u64 = acknowledged.unwrap_or(done);
    println!("{acknowledged} steps across the upgrade");
    let mut writer = Writer::start(scratch, acknowledged, acknowledged + 5)?;
    wait_for(LIMIT, || Ok(writer.done()? >= acknowledged + 5)).context("what was written is not there")
}

/// A server that hangs is killed and started again.
fn be_watched(machine: &Machine) -> Result<()> {
    machine.drop_in("cellar.service", "[Service]\nWatchdogSec=12s\nTimeoutAbortSec=1s\n")?;
    machine.must("systemctl restart cellar")?;
    // Long enough to be killed if it does not report.
    std::thread::sleep(Duration::from_secs(15));
    ensure!(machine.property("cellar", "NRestarts")? == "0", "a server that works was killed");
    machine.must("systemctl kill --signal=STOP --kill-who=main cellar")?;
    wait_for(LIMIT, || Ok(machine.property("cellar", "NRestarts")? == "1"))
        .context("a hanging server stays")?;
    let journal = machine.must("journalctl --no-pager -u cellar")?;
    ensure!(journal.contains("Watchdog timeout"), "{journal}");
    wait_for(LIMIT, || Ok(list_volumes()?.status == 0))
}

/// The first call starts the server.
fn start_by_socket(machine: &Machine) -> Result<()> {
    let ports = [7000, 7002, 7003, 7005, 7007].map(|port| format!("ListenDatagram={ADDRESS}:{port}\n"));
    machine.drop_in("cellar.socket", &format!("[Socket]\nListenDatagram=\n{}", ports.concat()))?;
    machine.must("systemctl stop cellar")?;
    machine.must("systemctl start cellar.socket")?;
    ensure!(machine.property("cellar", "ActiveState")? == "inactive", "it was not stopped");
    let listed = list_volumes()?.ok()?;
    ensure!(listed.contains("tried"), "{listed}");
    // The service manager is notified after the first answers.
    wait_for(LIMIT, || Ok(machine.property("cellar", "ActiveState")? == "active"))
        .context("no server started")
}

/// Removing the package stops the server and keeps data; purging it lists what it leaves.
fn leave(machine: &Machine) -> Result<()> {
    machine.must("apt-get remove -y cellar")?;
    let ports =
        output(Command::new("ss").args(["-Hlun", "sport", ">=", ":7000", "and", "sport", "<=", ":7007"]))?;
    ensure!(ports.text.is_empty(), "ports are still open:\n{}", ports.text);
    let data = ["etc/cellar/cellar.toml", "etc/cellar/KeyFileExt", "var/lib/cellar/sysid", "vicepa/cellar"];
    for path in data {
        ensure!(machine.root().join(path).exists(), "removal took {path}");
    }
    ensure!(!machine.root().join("usr/bin/cellar").exists(), "the program is still there");
    let said = machine.must("apt-get purge -y cellar")?;
    for folder in ["/etc/cellar", "/var/lib/cellar", "/var/log/cellar", "/vicepa/cellar"] {
        ensure!(said.contains(&format!("cellar: left {folder};")), "not a word of {folder}:\n{said}");
        ensure!(machine.root().join(&folder[1..]).exists(), "purging took {folder}");
    }
    ensure!(!machine.root().join(data[0]).exists(), "the configuration file of the package was not purged");
    Ok(())
}
