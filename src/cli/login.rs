//! `weir login`, `weir token` and `weir logout`. A user signs a machine in to a gateway with the OAuth device flow. After that,
//! agents on the machine can use a token instead of a key, even if they do not support this flow. The tokens are in a file that
//! only its owner can read. Only one process uses the file at a time.

mod gateway;

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, ErrorKind, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    api::sessions::{EndSignIns, ListSignIns},
    cli::{
        IdArgs,
        admin_client::{AdminClient, AdminClientError, ClientArgs, text_or_empty},
        login::gateway::{MachineTokens, SignInEndpoints, SignInGateway, TokenError},
        output::partial_path,
    },
    domain::{
        keys::{KeyId, secret::Secret},
        sign_in::SecureUrl,
    },
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

/// The reason why `weir login`, `weir token` or `weir logout` failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoginError {
    /// The address is not a URL, or its scheme is not https.
    #[error("cannot sign in at {0}: the address is not allowed; use https://HOST (http:// works for localhost only)")]
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
    /// The gateway did not issue or revoke tokens.
    #[error("the request to {gateway} failed: {why}")]
    Gateway {
        /// The URL of the gateway.
        gateway: String,
        /// The reason of the failure.
        why: TokenError,
    },
    /// The sign-in was ended at the gateway, or has expired.
    #[error("the sign-in at {0} has expired or was ended there; run weir login {0} to sign in again")]
    Ended(String),
    /// The result cannot be printed.
    #[error("cannot print the result: {0}")]
    Output(#[from] io::Error),
}

/// Runs `weir login`.
pub(crate) async fn login(args: &LoginArgs, out: &mut impl Write) -> Result<(), LoginError> {
    let place = SignInFileLocation::find(args.file.file.clone())?;
    let address = SecureUrl::parse(&args.gateway).ok_or_else(|| LoginError::Address(args.gateway.clone()))?;
    // The path is made absolute, because `weir token` may later run in another folder.
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
    // The lock makes a second process wait. The second process then finds the tokens that the first process has refreshed, and
    // need not refresh them again.
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
            // After another failure of the refresh, the stored token is printed, because it is still valid for a short time.
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

/// Connects to the gateway that the machine is signed in to. Returns a client of the gateway, and the gateway's endpoints.
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
        fs::read(path).map_err(|source| LoginError::Authorities {
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
    /// List the agents that are signed in with a key. For each sign-in, show when the agent last received tokens, and when the
    /// sign-in ends
    List(KeySignInsArgs),
    /// Sign out all agents that are signed in with a key. The key itself does not change
    End(KeySignInsArgs),
}

/// The arguments of a command about the agents that are signed in with one key.
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
            writeln!(out, "all sign-ins with {} have ended", args.named.id())?;
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

const IN_CONFIG: &str = "weir/sign-in.json";

/// The reason why the file with the tokens cannot be used.
#[derive(Debug, Error)]
pub(crate) enum SignInFileError {
    /// The default path of the file cannot be determined.
    #[error(
        "cannot find the file with the tokens, because neither HOME nor XDG_CONFIG_HOME is set: name a file with --file"
    )]
    FolderUnknown,
    /// The file cannot be read or written.
    #[error("cannot read or write {}: {source}", path.display())]
    System {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file has content that weir has not written.
    #[error("cannot use {}: its content was not written by weir login; delete the file, or name another one with --file", .0.display())]
    Unreadable(PathBuf),
    /// The file does not exist, so the machine is not signed in.
    #[error("not signed in ({} does not exist): run weir login URL", .0.display())]
    NotSignedIn(PathBuf),
}

/// The sign-in of a machine at a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SavedSignIn {
    /// The URL of the gateway, as `https://HOST`.
    gateway: String,
    /// The file with the CA certificates that are trusted for the gateway. `None` for the machine's CA certificates.
    ca_file: Option<PathBuf>,
    access_token: Secret,
    /// When the access token expires, in seconds since the Unix epoch.
    expires_at: i64,
    refresh_token: Secret,
}

#[derive(Serialize, Deserialize)]
struct SignInRecord {
    gateway: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ca_file: Option<PathBuf>,
    access_token: String,
    expires_at: i64,
    refresh_token: String,
}

impl SavedSignIn {
    /// Creates a sign-in with tokens that were issued at the time `now`, in seconds since the Unix epoch.
    fn new(gateway: String, ca_file: Option<PathBuf>, tokens: MachineTokens, now: i64) -> Self {
        Self {
            gateway,
            ca_file,
            access_token: tokens.access,
            expires_at: now.saturating_add(tokens.lasts_seconds),
            refresh_token: tokens.refresh,
        }
    }

    /// Replaces the tokens with new ones that were issued at the time `now`, in seconds since the Unix epoch.
    fn replace_tokens(&mut self, tokens: MachineTokens, now: i64) {
        *self = Self::new(self.gateway.clone(), self.ca_file.take(), tokens, now);
    }
}

/// The path of the file, and whether the user has named it.
#[derive(Clone, Debug)]
struct SignInFileLocation {
    path: PathBuf,
    is_named: bool,
}

impl SignInFileLocation {
    /// Returns the location of the file `named`, or of the user's default file.
    fn find(named: Option<PathBuf>) -> Result<Self, SignInFileError> {
        if let Some(path) = named {
            return Ok(Self { path, is_named: true });
        }
        let folder = |name: &str| {
            std::env::var_os(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        let config = folder("XDG_CONFIG_HOME").or_else(|| Some(folder("HOME")?.join(".config")));
        let path = config.ok_or(SignInFileError::FolderUnknown)?.join(IN_CONFIG);
        Ok(Self { path, is_named: false })
    }

    fn path(&self) -> &Path {
        &self.path
    }

    /// Returns a shell command that runs weir's subcommand `word` with this file.
    fn command(&self, word: &str) -> String {
        if self.is_named {
            format!(
                "weir {word} --file '{}'",
                self.path.display().to_string().replace('\'', "'\\''")
            )
        } else {
            format!("weir {word}")
        }
    }

    /// Locks the file for this process until the returned value is dropped.
    fn lock(&self) -> Result<LockedSignInFile<'_>, SignInFileError> {
        let lock = || {
            if let Some(folder) = self.path.parent() {
                DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            }
            let mut name = self.path.as_os_str().to_owned();
            name.push(".lock");
            let lock = private().create(true).truncate(false).open(PathBuf::from(name))?;
            lock.lock()?;
            Ok(lock)
        };
        let lock = lock().map_err(|source| self.failed(source))?;
        Ok(LockedSignInFile {
            place: self,
            _lock: lock,
        })
    }

    fn failed(&self, source: io::Error) -> SignInFileError {
        let path = self.path.clone();
        match source.kind() {
            ErrorKind::NotFound => SignInFileError::NotSignedIn(path),
            _ => SignInFileError::System { path, source },
        }
    }
}

/// The file with the tokens, while this process has it locked.
struct LockedSignInFile<'p> {
    place: &'p SignInFileLocation,
    _lock: File,
}

impl LockedSignInFile<'_> {
    fn read(&self) -> Result<SavedSignIn, SignInFileError> {
        let place = self.place;
        let text = fs::read(&place.path).map_err(|source| place.failed(source))?;
        let written: SignInRecord =
            serde_json::from_slice(&text).map_err(|_| SignInFileError::Unreadable(place.path.clone()))?;
        Ok(SavedSignIn {
            gateway: written.gateway,
            ca_file: written.ca_file,
            access_token: Secret::new(written.access_token),
            expires_at: written.expires_at,
            refresh_token: Secret::new(written.refresh_token),
        })
    }

    /// Replaces the content of the file atomically.
    fn write(&self, signed_in: &SavedSignIn) -> Result<(), SignInFileError> {
        let path = &self.place.path;
        let written = SignInRecord {
            gateway: signed_in.gateway.clone(),
            ca_file: signed_in.ca_file.clone(),
            access_token: signed_in.access_token.expose().to_owned(),
            expires_at: signed_in.expires_at,
            refresh_token: signed_in.refresh_token.expose().to_owned(),
        };
        let replace = || {
            let partial = partial_path(path);
            // The partial file of an interrupted write is removed first, because its mode may let others read it.
            match fs::remove_file(&partial) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut file = private().create_new(true).open(&partial)?;
            file.write_all(&serde_json::to_vec(&written)?)?;
            file.sync_all()?;
            fs::rename(&partial, path)
        };
        replace().map_err(|source| SignInFileError::System {
            path: path.clone(),
            source,
        })
    }

    /// Removes the file.
    fn remove(&self) -> Result<(), SignInFileError> {
        fs::remove_file(&self.place.path).map_err(|source| self.place.failed(source))
    }
}

/// Returns open options for a file that only its owner can read and write.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn signed_in(access: &str) -> SavedSignIn {
        SavedSignIn {
            gateway: "https://weir.example".to_owned(),
            ca_file: None,
            access_token: Secret::new(access),
            expires_at: 7,
            refresh_token: Secret::new("refresh"),
        }
    }

    #[test]
    fn tokens_are_read_again_and_are_for_their_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/sign-in.json");
        let place = SignInFileLocation::find(Some(path.clone())).unwrap();
        let locked = place.lock().unwrap();
        assert!(matches!(locked.read(), Err(SignInFileError::NotSignedIn(_))));
        // A partial file that others can read already exists. It is replaced, not written into.
        fs::write(partial_path(&path), "").unwrap();
        for access in ["first", "second"] {
            locked.write(&signed_in(access)).unwrap();
            assert_eq!(locked.read().unwrap(), signed_in(access));
        }
        for made in [&path, &path.with_extension("json.lock")] {
            assert_eq!(
                fs::metadata(made).unwrap().permissions().mode() & 0o777,
                0o600,
                "{made:?}"
            );
        }
        let made = fs::metadata(path.parent().unwrap()).unwrap();
        assert_eq!(made.permissions().mode() & 0o777, 0o700);
        fs::write(&path, "{}").unwrap();
        assert!(matches!(locked.read(), Err(SignInFileError::Unreadable(_))));
        locked.remove().unwrap();
        assert!(matches!(locked.read(), Err(SignInFileError::NotSignedIn(_))));
    }

    #[test]
    fn a_file_is_used_by_one_process_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sign-in.json");
        let place = SignInFileLocation::find(Some(path.clone())).unwrap();
        let locked = place.lock().unwrap();
        let again = private().open(path.with_extension("json.lock")).unwrap();
        assert!(again.try_lock().is_err());
        drop(locked);
        assert!(again.try_lock().is_ok());
    }

    #[test]
    fn a_command_can_be_pasted() {
        let place = SignInFileLocation::find(Some(PathBuf::from("/a b/it's"))).unwrap();
        assert_eq!(place.command("token"), r"weir token --file '/a b/it'\''s'");
    }

    #[test]
    fn nothing_of_a_token_is_printed() {
        assert!(!format!("{:?}", signed_in("canary")).contains("canary"));
    }
}
