//! Access control lists, in the text form of FetchACL and StoreACL.
