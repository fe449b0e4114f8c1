//! JuiceFS with its data in a bucket of SeaweedFS, mounted inside a cell.
//!
//! Its metadata is in SQLite on the same disk. JuiceFS has no server: the mount is the file system.

use super::{JUICEFS_BUCKET, seaweed_folders};
use crate::side::{Generator, inside};
use crate::store::{forget, sync};
use anyhow::{Context, Result};
use interop::cell::Cell;
use interop::seaweed::{ENDPOINT, KEY, SECRET};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A mounted JuiceFS.
pub(super) struct JuiceFs {
    pub(super) version: String,
    program: PathBuf,
    generator: Generator,
}

impl JuiceFs {
    /// Returns the program, if it is installed.
    pub(super) fn find() -> Option<PathBuf> {
        let paths = std::env::var_os("PATH")?;
        std::env::split_paths(&paths).map(|folder| folder.join("juicefs")).find(|path| path.exists())
    }

    /// Creates a file system in the bucket, and mounts it.
    pub(super) fn start(cell: &Cell, program: PathBuf) -> Result<JuiceFs> {
        let output = Command::new(&program).arg("version").output().context("juicefs version")?;
        let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let folder = folder(cell);
        std::fs::create_dir_all(folder.join("mounted"))?;
        let format = format!(
            "{} format --storage s3 --bucket {ENDPOINT}/{JUICEFS_BUCKET} --access-key {KEY} --secret-key {SECRET} \
             --trash-days 0 {} bench",
            program.display(),
            database(&folder)
        );
        cell.run(&format)?.ok().context("juicefs format")?;
        mount(cell, &program)?;
        let load = folder.join("mounted/load");
        cell.run(&format!("mkdir {}", load.display()))?.ok()?;
        let mut command = inside(cell)?;
        command.arg("mounted").arg("--folder").arg(&load);
        Ok(JuiceFs { version, program, generator: Generator::start(&mut command)? })
    }

    pub(super) fn generator(&mut self) -> &mut Generator {
        &mut self.generator
    }

    /// Mounts it again with nothing of it in memory and, unless `keeps_copies` is set, without its copies of the
    /// bucket's data on the disk.
    pub(super) fn restart(&self, cell: &Cell, keeps_copies: bool) -> Result<()> {
        let folder = folder(cell);
        let mounted = folder.join("mounted");
        cell.run(&format!("umount {}", mounted.display()))?.ok()?;
        let cache = folder.join("cache");
        if !keeps_copies && cache.exists() {
            std::fs::remove_dir_all(&cache)?;
        }
        sync(cell)?;
        for place in [folder, seaweed_folders(cell)] {
            forget(&place)?;
        }
        mount(cell, &self.program)
    }
}

fn folder(cell: &Cell) -> PathBuf {
    cell.path().join("juicefs")
}

fn database(folder: &Path) -> String {
    format!("sqlite3://{}/meta.db", folder.display())
}

fn mount(cell: &Cell, program: &Path) -> Result<()> {
    let folder = folder(cell);
    let command = format!(
        "{} mount -d --no-usage-report --cache-dir {place}/cache --log {place}/log {} {place}/mounted",
        program.display(),
        database(&folder),
        place = folder.display()
    );
    cell.run(&command)?.ok().context("juicefs mount").map(drop)
}
