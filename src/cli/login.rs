//! `weir login`, `weir token` and `weir logout`. With them a user signs a machine in to a gateway by the OAuth device flow.
//! Agents on the machine that have no support for this flow then use a token instead of a key.

mod gateway;
mod sign_in_file;

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand};

use crate::{
    api::sessions::{EndSignIns, ListSignIns},
    cli::{
        admin_client::{AdminClient, AdminClientError, ClientArgs, text_or_empty},
        args::IdArgs,
        login::{
            gateway::{MachineTokens, SignInEndpoints, SignInGateway, TokenError},
            sign_in_file::{SavedSignIn, SignInFileError, SignInFileLocation},
        },
    },
    domain::{keys::KeyId, sign_in::SecureUrl},
    edges::{clock, web_client::RootsError},
};

/// The minimum remaining lifetime of a printed token, in seconds. A token that expires sooner is refreshed first.
const GOOD_FOR_SECONDS: i64 = 300;

/// The arguments of `weir login`.
#[derive(Args, Debug)]
pub struct LoginArgs {
    /// The URL of the gateway, as https://HOST
    #[arg(value_name = "URL")]
    pub gateway: String,
    /// A PEM file with the CA certificates that are trusted for the gateway [default: those of this machine]
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub file: SignInFile,
}

/// The option for the file that stores the tokens.
#[derive(Args, Clone, Debug)]
pub struct SignInFile {
    /// The file that stores the tokens [default: weir/sign-in.json in $XDG_CONFIG_HOME or ~/.config]
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// Why `weir login`, `weir token` or `weir logout` failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoginError {
    /// The address is not a URL, or its scheme is not https.
    #[error("cannot sign in at {0}: use https://HOST (http works for localhost only)")]
    Address(String),
    /// The file that stores the tokens does not exist or cannot be used.
    #[error(transparent)]
    File(#[from] SignInFileError),
    /// The file with CA certificates cannot be read.
    #[error("cannot read the CA certificates of --ca-file {}: {source}", path.display())]
    Authorities {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The CA certificates cannot be used.
    #[error("cannot use the CA certificates: {0}")]
    Roots(#[from] RootsError),
    /// The gateway did not issue tokens, or did not revoke them.
    #[error("the request to {gateway} failed: {why}")]
    Gateway {
        /// The URL of the gateway.
        gateway: String,
        /// The reason of the failure.
        why: TokenError,
    },
    /// The sign-in was ended at the gateway, or has expired.
    #[error("the sign-in at {0} has ended: run weir login {0}")]
    Ended(String),
    /// The result cannot be printed.
    #[error("cannot print the result: {0}")]
    Output(#[from] io::Error),
}

/// Runs `weir login`.
pub(crate) async fn login(args: &LoginArgs, out: &mut impl Write) -> Result<(), LoginError> {
    let place = SignInFileLocation::find(args.file.file.clone())?;
    let address = SecureUrl::parse(&args.gateway).ok_or_else(|| LoginError::Address(args.gateway.clone()))?;
    // The path is made absolute, because a later `weir token` may run in another folder.
    let ca_file = args.ca_file.as_deref().map(absolute).transpose()?;
    let base = address.origin();
    let gateway = SignInGateway::new(&base, read_authorities(ca_file.as_deref())?.as_deref())?;
    let endpoints = gateway.discover().await.map_err(gateway_error(&base))?;
    let begun = gateway.begin(&endpoints).await.map_err(gateway_error(&base))?;
    writeln!(out, "Open {}", begun.open)?;
    writeln!(
        out,
        "and approve the code {} within {} minutes.",
        begun.user_code,
        begun.lasts.as_secs() / 60
    )?;
    out.flush()?;
    let tokens = gateway
        .wait_for_approval(&endpoints, &begun, clock::instant())
        .await
        .map_err(gateway_error(&base))?;
    let signed_in = SavedSignIn::new(base.clone(), ca_file, tokens, clock::unix_seconds());
    place.lock()?.write(&signed_in)?;
    writeln!(
        out,
        "Signed in. The tokens are in {}, which only you can read.",
        place.path().display()
    )?;
    writeln!(out, "\nAgents can use a token in place of a key:")?;
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
    let place = SignInFileLocation::find(file.file.clone())?;
    // The lock makes a second process wait. It then finds the tokens that the first one got, instead of refreshing them again.
    let locked = place.lock()?;
    let mut signed_in = locked.read()?;
    let lasts = signed_in.expires_at.saturating_sub(clock::unix_seconds());
    if lasts < GOOD_FOR_SECONDS {
        match refresh_tokens(&signed_in).await {
            Ok(tokens) => {
                signed_in.replace_tokens(tokens, clock::unix_seconds());
                locked.write(&signed_in)?;
            }
            Err(LoginError::Gateway {
                why: TokenError::Refused(word),
                ..
            }) if word == "invalid_grant" => {
                return Err(LoginError::Ended(signed_in.gateway));
            }
            // If refreshing fails otherwise, the stored token is printed, because it is still valid for a short time.
            Err(LoginError::Gateway { .. }) if lasts > 0 => {}
            Err(other) => return Err(other),
        }
    }
    writeln!(out, "{}", signed_in.access_token.expose())?;
    Ok(())
}

/// Runs `weir logout`.
pub(crate) async fn logout(file: &SignInFile, out: &mut impl Write) -> Result<(), LoginError> {
    let place = SignInFileLocation::find(file.file.clone())?;
    let locked = place.lock()?;
    let signed_in = locked.read()?;
    let (gateway, endpoints) = connect_gateway(&signed_in).await?;
    let revoked = gateway.revoke(&endpoints, signed_in.refresh_token.expose()).await;
    revoked.map_err(gateway_error(&signed_in.gateway))?;
    locked.remove()?;
    writeln!(out, "signed out at {}", signed_in.gateway)?;
    Ok(())
}

async fn refresh_tokens(signed_in: &SavedSignIn) -> Result<MachineTokens, LoginError> {
    let (gateway, endpoints) = connect_gateway(signed_in).await?;
    let tokens = gateway.refresh(&endpoints, signed_in.refresh_token.expose()).await;
    tokens.map_err(gateway_error(&signed_in.gateway))
}

/// Connects to the gateway that the machine is signed in to. Returns its client and its endpoints.
async fn connect_gateway(signed_in: &SavedSignIn) -> Result<(SignInGateway, SignInEndpoints), LoginError> {
    let base = &signed_in.gateway;
    let gateway = SignInGateway::new(base, read_authorities(signed_in.ca_file.as_deref())?.as_deref())?;
    let endpoints = gateway.discover().await.map_err(gateway_error(base))?;
    Ok((gateway, endpoints))
}

fn gateway_error(gateway: &str) -> impl Fn(TokenError) -> LoginError + '_ {
    move |why| LoginError::Gateway {
        gateway: gateway.to_owned(),
        why,
    }
}

fn read_authorities(file: Option<&Path>) -> Result<Option<Vec<u8>>, LoginError> {
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

/// The subcommands of `weir sign-in`.
#[derive(Clone, Debug, Subcommand)]
pub enum SignInCommand {
    /// List the sign-ins of agents with a key: when each last got tokens, and when it ends
    List(KeySignInsArgs),
    /// End all sign-ins of agents with a key; the key itself does not change
    End(KeySignInsArgs),
}

/// The arguments of a command about the sign-ins with one key.
#[derive(Args, Clone, Debug)]
pub struct KeySignInsArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub named: IdArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub client: ClientArgs,
}

impl SignInCommand {
    /// Returns the options for calling a running weir.
    pub(crate) fn client(&self) -> &ClientArgs {
        let (Self::List(args) | Self::End(args)) = self;
        &args.client
    }
}

/// Calls the admin API and prints the result.
pub(crate) async fn run(
    command: &SignInCommand,
    client: &AdminClient,
    out: &mut impl Write,
) -> Result<(), AdminClientError> {
    let (SignInCommand::List(args) | SignInCommand::End(args)) = command;
    let id = KeyId::parse(args.named.id()).map_err(|error| AdminClientError::Usage(error.to_string()))?;
    if let SignInCommand::End(_) = command {
        let reply = client.request(&EndSignIns { id }).await?;
        if args.client.json {
            writeln!(out, "{}", reply.text)?;
        } else {
            writeln!(out, "all agents of {} are signed out", args.named.id())?;
        }
        return Ok(());
    }
    let reply = client.request(&ListSignIns { id }).await?;
    if args.client.json {
        writeln!(out, "{}", reply.text)?;
        return Ok(());
    }
    writeln!(out, "{:<20}  ENDS", "LAST REFRESH")?;
    for one in reply.read()?.sign_ins {
        let [used, ends] = [one.used_at, one.ends_at].map(text_or_empty);
        writeln!(out, "{used:<20}  {ends}")?;
    }
    Ok(())
}
