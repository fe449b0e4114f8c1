//! Writes the instances in the format of OpenAFS's `BosConfig` file (ReadBozoFile and WriteBozoFile of
//! `bozo/bosserver.c`).

use crate::instance::{goal_number, kind_name};
use crate::overseer::Role;
use afs_idl::bozo::time_mask;
use std::fmt::Write as _;

/// Returns the text of a `BosConfig` file for these instances: in restricted mode, without regular restarts,
/// and with each instance's type, configured goal and command lines.
pub fn bos_config(roles: &[Role]) -> String {
    let never = time_mask::NEVER;
    let mut text = format!("restrictmode 1\nrestarttime {never} 0 0 0 0\ncheckbintime {never} 0 0 0 0\n");
    for role in roles {
        let (kind, goal) = (kind_name(role.kind), goal_number(role.configured_running));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "bnode {kind} {} {goal}", role.name);
        for command in &role.commands {
            let _ = writeln!(text, "parm {command}");
        }
        text.push_str("end\n");
    }
    text
}
