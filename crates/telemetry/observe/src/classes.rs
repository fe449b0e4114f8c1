//! Classes of the file service's calls.

use afs_idl::fs;
use events::catalogue::Class;

/// Returns the class of a procedure of RXAFS.
pub fn class_of_file_call(opcode: u32) -> Class {
    match opcode {
        fs::FETCH_DATA | fs::FETCH_DATA64 => Class::Fetch,
        fs::STORE_DATA | fs::STORE_DATA64 => Class::Store,
        fs::FETCH_STATUS
        | fs::FETCH_ACL
        | fs::BULK_STATUS
        | fs::INLINE_BULK_STATUS
        | fs::LOOKUP
        | fs::GET_VOLUME_STATUS => Class::Status,
        fs::STORE_STATUS
        | fs::STORE_ACL
        | fs::OLD_STORE_ACL
        | fs::REMOVE_FILE
        | fs::CREATE_FILE
        | fs::RENAME
        | fs::SYMLINK
        | fs::DFS_SYMLINK
        | fs::LINK
        | fs::MAKE_DIR
        | fs::REMOVE_DIR
        | fs::SET_VOLUME_STATUS => Class::Change,
        fs::SET_LOCK
        | fs::EXTEND_LOCK
        | fs::RELEASE_LOCK
        | fs::OLD_SET_LOCK
        | fs::OLD_EXTEND_LOCK
        | fs::OLD_RELEASE_LOCK => Class::Lock,
        _ => Class::Other,
    }
}
