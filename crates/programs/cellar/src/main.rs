//! The cellar program: a cell server, and the commands of its administrators.

use anyhow::Context as _;
use cellar::commands::context::{Connect, Context, load_server_settings};
use cellar::{commands, quickstart};
use cellar_server::sockets::{Sources, supervisor};
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// An AFS cell server.
#[derive(Parser)]
#[command(name = "cellar", version, about = "An AFS cell server", propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve a cell, or a part of one, until SIGINT or SIGTERM.
    Serve {
        /// Configuration file; OpenAFS's files by default.
        #[arg(long)]
        config: Option<PathBuf>,
        /// Take over the sockets of the server running with this configuration, which then shuts down
        /// cleanly, and serve in its place. Calls that arrive meanwhile wait. Without a running server, just
        /// serve.
        #[arg(long)]
        replace: bool,
        /// Serve in a child process, keep its sockets, and restart it if it is killed. Calls that arrive
        /// meanwhile wait. A service manager such as systemd does the same.
        #[arg(long)]
        supervise: bool,
        #[arg(long, hide = true, conflicts_with = "supervise")]
        sockets_on_stdin: bool,
    },
    Quickstart(quickstart::Quickstart),
    /// Check the configuration, and show it with the source of each value.
    Config {
        #[command(subcommand)]
        command: commands::config::Config,
    },
    /// Manage volumes.
    Volume {
        #[command(subcommand)]
        command: commands::volume::Volume,
        #[command(flatten)]
        connect: Connect,
    },
    /// Make the cell what a file declares: users, groups, volumes, mount points, read-only sites and policies.
    ///
    /// What is so already stays as it is; a second run has nothing to do. What the file does not declare is
    /// never removed. Exit status: 0 all is as declared, 1 failure, or the file contradicts the cell; with
    /// --dry-run 3 if there are changes to make.
    Apply {
        #[command(flatten)]
        apply: commands::apply::Applying,
        #[command(flatten)]
        connect: Connect,
    },
    /// Manage users.
    User {
        #[command(subcommand)]
        command: commands::protection::User,
        #[command(flatten)]
        connect: Connect,
    },
    /// Manage groups.
    Group {
        #[command(subcommand)]
        command: commands::protection::Group,
        #[command(flatten)]
        connect: Connect,
    },
    /// Copy files and trees into and out of a cell.
    ///
    /// `cell:VOLUME/PATH` names a file in the cell. A source directory that ends in `/` stands for its contents. Symbolic
    /// links within a tree are copied, never followed. A local target that is itself a link is followed if it ends in
    /// `/`. Local files get the mode of the file in the cell less the umask, without the set-user-ID, set-group-ID and
    /// sticky bits.
    ///
    /// What cannot be copied is reported with its path and the reason, and the rest is copied. The exit status is 0 if
    /// everything was copied. Ctrl-C ends the copy after the files in progress.
    Cp {
        #[command(flatten)]
        copy: commands::cp::Copy,
        #[command(flatten)]
        connect: Connect,
    },
    /// Show the disk usage of directories.
    Du {
        #[command(flatten)]
        du: commands::du::DiskUsage,
        #[command(flatten)]
        connect: Connect,
    },
    /// Show or change the state of a running server.
    Server {
        #[command(subcommand)]
        command: commands::server::Server,
        #[command(flatten)]
        connect: Connect,
    },
    /// Show statistics of a running server.
    Stat {
        #[command(subcommand)]
        command: commands::stat::Stat,
        #[command(flatten)]
        connect: Connect,
    },
    /// Show the latest slow calls and where their time went.
    Slow {
        #[command(flatten)]
        slow: commands::slow::Telling,
        #[command(flatten)]
        connect: Connect,
    },
    /// Find known problems of a server, Cellar's or OpenAFS's, with the evidence, causes and remedies. Exit
    /// status: 0 no findings, 1 findings, 2 examination failed.
    Doctor {
        #[command(flatten)]
        doctor: commands::doctor::Examining,
        #[command(flatten)]
        connect: Connect,
    },
    /// Profile a running server with flame graphs and tables.
    Profile {
        #[command(subcommand)]
        command: commands::profile::Profile,
        #[command(flatten)]
        connect: Connect,
    },
    /// Watch a server live.
    Top {
        #[command(flatten)]
        top: commands::top::Showing,
        #[command(flatten)]
        connect: Connect,
    },
    /// Use the server's web page.
    Web {
        #[command(subcommand)]
        command: commands::web::Web,
        #[command(flatten)]
        connect: Connect,
    },
    /// Check, rekey and recover partitions, and analyze the space that data would take.
    Store {
        #[command(subcommand)]
        command: commands::store::Store,
    },
    /// Test buckets for partitions.
    Bucket {
        #[command(subcommand)]
        command: commands::bucket::Bucket,
    },
    /// Manage a cluster: several servers (nodes) that serve the partitions in a bucket as one file server.
    Cluster {
        #[command(subcommand)]
        command: commands::cluster::Cluster,
        #[command(flatten)]
        connect: Connect,
    },
    /// Inspect, compare and extract volume dump files.
    Dump {
        #[command(subcommand)]
        command: commands::dump::Dump,
    },
    Promote(commands::promote::Promote),
    /// Measure access latency from outside by writing and reading a small file on each server at intervals.
    Probe {
        #[command(subcommand)]
        command: commands::probe::Probe,
        #[command(flatten)]
        connect: Connect,
    },
    /// Analyse AFS traffic passively, live or from a capture file: types, times, hosts and volumes of calls,
    /// and problems.
    Sniff(commands::sniff::Sniff),
    /// Measure servers under load, Cellar's and OpenAFS's.
    Bench {
        #[command(subcommand)]
        command: commands::bench::Bench,
    },
    /// Import OpenAFS's databases and volumes. The server must be stopped.
    Import {
        #[command(subcommand)]
        command: commands::import::Import,
    },
    /// Print a completion script for a shell.
    Completions {
        /// Shell to complete for.
        shell: Shell,
    },
    /// Write a manual page for each command.
    #[command(hide = true)]
    Manual {
        /// Existing folder for the pages.
        folder: PathBuf,
    },
}

impl Command {
    /// Returns whether it writes a server's state, which other users of the machine must not read. Files
    /// copied out of a cell belong to the user.
    fn writes_state(&self) -> bool {
        matches!(
            self,
            Command::Serve { .. }
                | Command::Quickstart(_)
                | Command::Import { .. }
                | Command::Store { .. }
                | Command::Promote(_)
        )
    }
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    if command.writes_state() {
        openafs_import::umask::make_private();
    }
    let result = match command {
        Command::Serve { config, replace, supervise: true, .. } => {
            supervisor::run(config.as_deref(), replace)
        }
        Command::Serve { config, replace, sockets_on_stdin, .. } => {
            let sources = Sources { predecessor: replace, supervisor: sockets_on_stdin };
            load_server_settings(config.as_deref()).and_then(|settings| cellar_server::run(settings, sources))
        }
        Command::Quickstart(quickstart) => quickstart::run(&quickstart),
        Command::Config { command } => commands::config::run(&command),
        Command::Volume { command, connect } => commands::volume::run(&Context::new(&connect), &command),
        Command::Apply { apply, connect } => return commands::apply::run(&Context::new(&connect), &apply),
        Command::User { command, connect } => {
            commands::protection::run_user(&Context::new(&connect), &command)
        }
        Command::Group { command, connect } => {
            commands::protection::run_group(&Context::new(&connect), &command)
        }
        Command::Cp { copy, connect } => commands::cp::run(&Context::new(&connect), &copy),
        Command::Du { du, connect } => commands::du::run(&Context::new(&connect), &du),
        Command::Server { command, connect } => commands::server::run(&Context::new(&connect), &command),
        Command::Stat { command, connect } => commands::stat::run(&Context::new(&connect), &command),
        Command::Slow { slow, connect } => commands::slow::run(&Context::new(&connect), &slow),
        Command::Profile { command, connect } => commands::profile::run(&Context::new(&connect), &command),
        Command::Top { top, connect } => commands::top::run(&Context::new(&connect), &top),
        Command::Doctor { doctor, connect } => {
            return commands::doctor::run(&Context::new(&connect), &doctor);
        }
        Command::Web { command, connect } => commands::web::run(&Context::new(&connect), &command),
        Command::Store { command } => commands::store::run(&command),
        Command::Bucket { command } => return commands::bucket::run(&command),
        Command::Cluster { command, connect } => commands::cluster::run(&Context::new(&connect), &command),
        Command::Promote(promote) => commands::promote::run(&promote),
        Command::Dump { command } => commands::dump::run(&command),
        Command::Probe { command, connect } => commands::probe::run(&Context::new(&connect), &command),
        Command::Sniff(sniff) => commands::sniff::run(&sniff),
        Command::Bench { command } => commands::bench::run(&command),
        Command::Import { command } => commands::import::run(&command),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "cellar", &mut std::io::stdout());
            Ok(())
        }
        Command::Manual { folder } => write_manual(&folder),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cellar: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Writes `cellar.1`, `cellar-volume.1`, `cellar-volume-create.1` and so on to a folder.
fn write_manual(folder: &Path) -> anyhow::Result<()> {
    let pages = clap_mangen::generate_to(Cli::command(), folder);
    pages.with_context(|| format!("cannot write the manual pages to {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_and_option_is_declared_once() {
        Cli::command().debug_assert();
    }

    /// Commands that change nothing in a cell.
    const READING: [&str; 14] = [
        "volume list",
        "volume examine",
        "volume jobs",
        "volume jobs list",
        "volume jobs show",
        "volume snapshot list",
        "user list",
        "user examine",
        "group list",
        "group examine",
        "promote status",
        "promote manifest",
        "promote key new",
        "promote key show",
    ];

    /// Collects the subcommands without further subcommands, with the options that their help shows.
    fn leaves(command: &clap::Command, path: &str, found: &mut Vec<(String, Vec<String>)>) {
        let below: Vec<_> = command.get_subcommands().filter(|below| below.get_name() != "help").collect();
        for below in &below {
            leaves(below, &format!("{path} {}", below.get_name()), found);
        }
        // `promote` has subcommands, but is a command as well.
        if below.is_empty() || !command.is_subcommand_required_set() {
            let shown = command.get_arguments().filter(|option| !option.is_hide_set());
            let options = shown.filter_map(|option| option.get_long());
            found.push((path.to_owned(), options.map(str::to_owned).collect()));
        }
    }

    #[test]
    fn every_command_has_a_manual_page() {
        let folder = tempfile::tempdir().unwrap();
        write_manual(folder.path()).unwrap();
        let mut cli = Cli::command();
        cli.build();
        let mut found = Vec::new();
        leaves(&cli, "cellar", &mut found);
        assert!(found.len() > 60, "{}", found.len());
        for (path, options) in found.iter().filter(|(path, _)| path != "cellar manual") {
            let page = folder.path().join(format!("{}.1", path.replace(' ', "-")));
            let text = std::fs::read_to_string(&page).unwrap_or_else(|error| panic!("{path}: {error}"));
            assert!(text.contains(".SH SYNOPSIS"), "{path}");
            let missing = options.iter().find(|option| !text.contains(&option.replace('-', "\\-")));
            assert_eq!(missing, None, "an option that the page of `{path}` lacks");
        }
        assert!(!folder.path().join("cellar-manual.1").exists());
    }

    #[test]
    fn changing_commands_have_dry_runs_and_json() {
        let mut cli = Cli::command();
        cli.build();
        let mut complaints = Vec::new();
        for name in ["volume", "user", "group", "promote", "import", "apply"] {
            let command = cli.find_subcommand(name).expect("a command");
            let mut found = Vec::new();
            leaves(command, name, &mut found);
            assert!(found.len() > 2 || name == "apply", "{found:?}");
            for (path, options) in found {
                let has = |name: &str| options.iter().any(|option| option == name);
                let (is_notified, only_reads) = (has("dry-run"), READING.contains(&&*path));
                complaints.extend((!has("json")).then(|| format!("{path} has no --json")));
                complaints.extend(
                    (is_notified == only_reads).then(|| format!("{path}: --dry-run is {is_notified}")),
                );
            }
        }
        assert_eq!(complaints, [""; 0]);
    }
}
