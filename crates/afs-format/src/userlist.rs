//! UserList: who may administer this server.
