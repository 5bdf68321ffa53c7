//! `weir sample-provider` in a program that was built without the sample provider. The command accepts any arguments and prints
//! how to get the sample provider.

use std::ffi::OsString;

use clap::Args;

/// The ignored arguments of `weir sample-provider` in a program that was built without the sample provider.
#[derive(Args, Debug)]
pub struct SampleProviderArgs {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}
