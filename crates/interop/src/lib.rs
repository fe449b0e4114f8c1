//! The real OpenAFS tools and the real kernel client against Cellar.
