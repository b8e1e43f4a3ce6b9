//! The user the server and its programs run as.
