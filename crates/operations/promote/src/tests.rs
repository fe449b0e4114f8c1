mod history;
mod manifests;
mod plans;
