//! `weir login`, `weir token` and `weir logout`: a person signs a machine in at a gateway, by the OAuth device flow, and agents
//! that know nothing of it get a token in place of a key.

mod gateway;
mod signed_in;

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use clap::Args;

use self::{
    gateway::{Endpoints, Gateway, NoTokens, Tokens},
    signed_in::{FileError, Place, SignedIn},
};
use crate::{
    domain::sign_in::endpoint::Endpoint,
    edges::{clock, roots::RootsError},
};

/// How long a token that is printed is good for, at the least: one that ends sooner is replaced first.
const GOOD_FOR_SECONDS: i64 = 300;

/// `weir login`
#[derive(Args, Debug)]
pub struct LoginArgs {
    /// The gateway's address, as https://HOST
    #[arg(value_name = "URL")]
    pub gateway: String,
    /// The certificate authorities that it is verified by, a PEM file [default: those of this machine]
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub file: SignInFile,
}

/// Where the tokens are.
#[derive(Args, Clone, Debug)]
pub struct SignInFile {
    /// The file that has the tokens [default: weir/sign-in.json in $XDG_CONFIG_HOME or ~/.config]
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// Why nobody is signed in or out, or there is no token.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoginError {
    /// The address can be read by others on its way, or is none.
    #[error("{0} is no address to sign in at: give https://HOST; http is for this machine alone")]
    Address(String),
    /// There is no place for the file, or it is not there, or cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// The authorities' file cannot be read.
    #[error("--ca-file {}: {source}", path.display())]
    Authorities {
        /// The file's path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There are no authorities to verify by.
    #[error("certificate authorities: {0}")]
    Roots(#[from] RootsError),
    /// The gateway gives no tokens.
    #[error("{gateway}: {why}")]
    Gateway {
        /// Which.
        gateway: String,
        /// Why.
        why: NoTokens,
    },
    /// The sign-in is over.
    #[error("the sign-in at {0} has ended: run weir login {0}")]
    Ended(String),
    /// The result cannot be printed.
    #[error("cannot print the result: {0}")]
    Output(#[from] io::Error),
}

/// Runs `weir login`.
pub(crate) async fn login(args: &LoginArgs, out: &mut impl Write) -> Result<(), LoginError> {
    let place = Place::of(args.file.file.clone())?;
    let address = Endpoint::parse(&args.gateway).ok_or_else(|| LoginError::Address(args.gateway.clone()))?;
    // The folder of a later `weir token` may be another one.
    let ca_file = args.ca_file.as_deref().map(absolute).transpose()?;
    let base = address.origin();
    let gateway = Gateway::new(&base, authorities(ca_file.as_deref())?.as_deref())?;
    let endpoints = gateway.discover().await.map_err(refused_by(&base))?;
    let begun = gateway.begin(&endpoints).await.map_err(refused_by(&base))?;
    writeln!(out, "Open {}", begun.open)?;
    writeln!(
        out,
        "and approve the code {} within {} minutes.",
        begun.user_code,
        begun.lasts.as_secs() / 60
    )?;
    out.flush()?;
    let tokens = gateway
        .wait(&endpoints, &begun, clock::instant())
        .await
        .map_err(refused_by(&base))?;
    let signed_in = SignedIn::new(base.clone(), ca_file, tokens, clock::unix_seconds());
    place.locked()?.write(&signed_in)?;
    writeln!(
        out,
        "Signed in. The tokens are in {}, for you alone.",
        place.path().display()
    )?;
    writeln!(out, "\nAgents take one where they take a key:")?;
    writeln!(
        out,
        "  export ANTHROPIC_BASE_URL={base} ANTHROPIC_AUTH_TOKEN=\"$({})\"",
        place.command("token")
    )?;
    writeln!(out, "  export WEIR_KEY=\"$({})\"", place.command("token"))?;
    Ok(())
}

/// Runs `weir token`.
pub(crate) async fn token(file: &SignInFile, out: &mut impl Write) -> Result<(), LoginError> {
    let place = Place::of(file.file.clone())?;
    // Whoever comes second finds the token that the first one got.
    let locked = place.locked()?;
    let mut signed_in = locked.read()?;
    let lasts = signed_in.expires_at.saturating_sub(clock::unix_seconds());
    if lasts < GOOD_FOR_SECONDS {
        match refreshed(&signed_in).await {
            Ok(tokens) => {
                signed_in.take(tokens, clock::unix_seconds());
                locked.write(&signed_in)?;
            }
            Err(LoginError::Gateway {
                why: NoTokens::Refused(word),
                ..
            }) if word == "invalid_grant" => {
                return Err(LoginError::Ended(signed_in.gateway));
            }
            // What is there is good for a moment still.
            Err(LoginError::Gateway { .. }) if lasts > 0 => {}
            Err(other) => return Err(other),
        }
    }
    writeln!(out, "{}", signed_in.access_token.expose())?;
    Ok(())
}

/// Runs `weir logout`.
pub(crate) async fn logout(file: &SignInFile, out: &mut impl Write) -> Result<(), LoginError> {
    let place = Place::of(file.file.clone())?;
    let locked = place.locked()?;
    let signed_in = locked.read()?;
    let (gateway, endpoints) = reached(&signed_in).await?;
    let revoked = gateway.revoke(&endpoints, signed_in.refresh_token.expose()).await;
    revoked.map_err(refused_by(&signed_in.gateway))?;
    locked.remove()?;
    writeln!(out, "signed out at {}", signed_in.gateway)?;
    Ok(())
}

async fn refreshed(signed_in: &SignedIn) -> Result<Tokens, LoginError> {
    let (gateway, endpoints) = reached(signed_in).await?;
    let tokens = gateway.refresh(&endpoints, signed_in.refresh_token.expose()).await;
    tokens.map_err(refused_by(&signed_in.gateway))
}

/// The gateway that a machine is signed in at.
async fn reached(signed_in: &SignedIn) -> Result<(Gateway, Endpoints), LoginError> {
    let base = &signed_in.gateway;
    let gateway = Gateway::new(base, authorities(signed_in.ca_file.as_deref())?.as_deref())?;
    let endpoints = gateway.discover().await.map_err(refused_by(base))?;
    Ok((gateway, endpoints))
}

fn refused_by(gateway: &str) -> impl Fn(NoTokens) -> LoginError + '_ {
    move |why| LoginError::Gateway {
        gateway: gateway.to_owned(),
        why,
    }
}

fn authorities(file: Option<&Path>) -> Result<Option<Vec<u8>>, LoginError> {
    let read = |path: &Path| {
        std::fs::read(path).map_err(|source| LoginError::Authorities {
            path: path.to_owned(),
            source,
        })
    };
    file.map(read).transpose()
}

fn absolute(path: &Path) -> Result<PathBuf, LoginError> {
    std::path::absolute(path).map_err(|source| LoginError::Authorities {
        path: path.to_owned(),
        source,
    })
}
