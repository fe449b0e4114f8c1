//! Finds parts of a server's state that other users of the machine can read because an earlier version
//! created them.

use cellar_config::Settings;
use cellar_config::files::exposed;
use std::path::PathBuf;

/// Returns a warning for each such directory or file, with the command that fixes it.
pub(super) fn warnings(settings: &Settings) -> Vec<String> {
    let folders = settings.partitions.iter().filter_map(|partition| partition.place.folder());
    let stores = folders.map(|path| path.join(store::partition::FOLDER));
    let logs = super::log::FILES.map(|name| settings.log_path.join(name));
    let others = [settings.database_path.clone(), settings.jobs_path()];
    let paths: Vec<PathBuf> = stores.chain(others).chain(logs).collect();
    paths.iter().filter_map(|path| exposed(path)).map(|mending| mending.to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registration::tests::settings;
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn permissions_left_open_by_older_versions_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(&folder);
        let (store, jobs) = (folder.path().join("p/cellar"), settings.jobs_path());
        let open = |path: &PathBuf, mode| {
            cellar_config::files::make_folder(path).unwrap();
            set_permissions(path, Permissions::from_mode(mode)).unwrap();
        };
        open(&store, 0o755);
        open(&jobs, 0o700);
        assert_eq!(
            warnings(&settings),
            [format!("other users can access {0} (mode 755): run `chmod 700 {0}`", store.display())]
        );
        open(&store, 0o700);
        assert_eq!(warnings(&settings), [""; 0]);
    }
}
