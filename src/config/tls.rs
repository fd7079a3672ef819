//! Settings of TLS: those of the API, and those of the commands that talk to one. None of a pair goes without the other.

use std::path::PathBuf;

use super::{Error, Layers, Origin, parse};

/// TLS of the gRPC API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// File of the certificate chain.
    pub cert: PathBuf,
    /// File of its key.
    pub key: PathBuf,
    /// File of the clients' authorities.
    pub client_ca: Option<PathBuf>,
    /// Whether a client must have a certificate.
    pub client_required: bool,
}

/// How a command speaks TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientTls {
    /// File of the authorities of the server's certificate; none: the public ones.
    pub server_ca: Option<PathBuf>,
    /// Files of the certificate to show and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl Layers {
    pub(super) fn tls(&self) -> Result<Option<Tls>, Error> {
        let path = |key| self.optional(key, parse::path);
        let (cert, key, client_ca) = (path("tls_cert")?, path("tls_key")?, path("tls_client_ca")?);
        let words = [("required", true), ("optional", false)];
        let client_required = self.get("tls_client_auth", |t| parse::word(t, &words))?;
        let auth = self.effective("tls_client_auth")?;
        if auth.origin != Origin::Default && client_ca.is_none() {
            return Err(Error::new(format!(
                "{auth}: it needs tls_client_ca, the authorities of the clients"
            )));
        }
        match (self.pair("tls_cert", cert, "tls_key", key)?, client_ca) {
            (Some((cert, key)), client_ca) => Ok(Some(Tls { cert, key, client_ca, client_required })),
            (None, None) => Ok(None),
            (None, Some(_)) => Err(Error::new(format!(
                "{}: it needs tls_cert and tls_key, as clients show certificates in TLS alone",
                self.effective("tls_client_ca")?
            ))),
        }
    }

    pub(super) fn client_tls(&self, server: &str) -> Result<ClientTls, Error> {
        let path = |key| self.optional(key, parse::path);
        let identity = self.pair("client_cert", path("client_cert")?, "client_key", path("client_key")?)?;
        let tls = ClientTls { server_ca: path("server_ca")?, identity };
        let given = ["server_ca", "client_cert"]
            .into_iter()
            .find(|key| self.effective(key).is_ok_and(|effective| !effective.text.is_empty()));
        match given {
            Some(key) if !server.starts_with("https://") => Err(Error::new(format!(
                "{}: the server is {server}, without TLS; write https://",
                self.effective(key)?
            ))),
            _ => Ok(tls),
        }
    }

    /// Two settings of which none goes without the other.
    fn pair<T>(
        &self,
        one: &'static str,
        first: Option<T>,
        other: &'static str,
        second: Option<T>,
    ) -> Result<Option<(T, T)>, Error> {
        let alone = |there, missing| {
            Ok::<_, Error>(Error::new(format!("{}: it needs {missing} as well", self.effective(there)?)))
        };
        match (first, second) {
            (Some(first), Some(second)) => Ok(Some((first, second))),
            (None, None) => Ok(None),
            (Some(_), None) => Err(alone(one, other)?),
            (None, Some(_)) => Err(alone(other, one)?),
        }
    }
}
