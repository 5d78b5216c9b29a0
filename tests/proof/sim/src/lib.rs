//! Empty: the package exists for its test.
