//! Messages, opcodes, server traits and client stubs of AFS's services, generated from idl/.
