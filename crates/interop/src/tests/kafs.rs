use crate::Test;

pub(crate) fn tests() -> Vec<Test> {
    Vec::new()
}
