//! Attacks from other addresses on the program, and the effects that they must not have.
//! docs/design/testing.md lists them.

mod amplify;
mod callbacks;
mod flood;
mod forward;
mod hijack;
mod identity;
mod interfaces;
mod memory;
mod queue;

use crate::Test;
use anyhow::Result;
use interop::means::Means;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        test("hostile-amplify", amplify::amplify),
        test("hostile-node", amplify::node),
        test("hostile-hijack", hijack::hijack),
        test("hostile-rxdebug", hijack::rxdebug),
        test("hostile-callbacks", callbacks::callbacks),
        test("hostile-forward", forward::forward),
    ]
}

/// Tests that send tens of thousands of datagrams per second.
pub(crate) fn alone() -> Vec<Test> {
    vec![
        test("hostile-flood", flood::flood),
        test("hostile-queue", queue::queue),
        test("hostile-memory", memory::memory),
        test("hostile-services", memory::services),
        test("hostile-node-services", memory::services_of_node),
        test("hostile-identity", identity::identity),
    ]
}

fn test(name: &'static str, run: fn() -> Result<()>) -> Test {
    Test { name, needs: &[Means::Netns], run }
}
