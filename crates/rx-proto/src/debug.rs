//! Answers to rxdebug.
