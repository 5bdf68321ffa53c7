//! The commands that need the sample provider, in a program that was built without it. Each returns an error that says how to get
//! it.

use crate::{
    cli::{DemoArgs, SampleProviderArgs},
    wiring::StartError,
};

pub(super) fn run_demo(_: &DemoArgs) -> Result<(), StartError> {
    Err(left_out("demo"))
}

pub(super) fn run_sample_provider(_: &SampleProviderArgs) -> Result<(), StartError> {
    Err(left_out("sample-provider"))
}

fn left_out(command: &'static str) -> StartError {
    let how = "this weir was built without the sample provider; build one with it from the source: \
               `cargo build --release --locked`";
    StartError::failed(command, how)
}
