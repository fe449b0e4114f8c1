//! Tests of the service on in-memory volumes.

mod basics;
mod counting;
mod digests;
mod dumps;
mod forwards;
mod history;
mod huge;
mod network;
mod objects;
mod queries;
mod refusals;
mod released;
mod resumed;
mod sharing;
mod splitting;
mod support;
mod transfers;
mod unchanged;
mod within;
