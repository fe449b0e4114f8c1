//! KeyFileExt and KeyFile: the server's rxkad keys.
