//! `weir sample-provider` in a program without the sample provider: accepts any arguments, to say how to get it.

use std::ffi::OsString;

use clap::Args;

/// Any arguments of `weir sample-provider`, in a program without it.
#[derive(Args, Debug)]
pub struct SampleProviderArgs {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}
