//! Formats of files and blobs that AFS clients and servers share: directories, ACLs, configuration, key files.
