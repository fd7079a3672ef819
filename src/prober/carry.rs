//! What a run takes along: headers made of texts and secrets, TLS by reference; and the operator's rules for that.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
};

use super::{
    Failure, Progress,
    secrets::{Audience, Secrets},
};
use crate::core::{
    probe::{
        self, ClientIdentity, ErrorClass, HIDDEN, Header, HostPort, HttpProbe, McpProbe, Method, ProbeKind,
        Secret, SecretName, Tls, fits_header,
    },
    tool::{SpecWarning, ToolSpec},
};

/// The setting that permits probes that verify no certificate.
pub const INSECURE_SETTING: &str = "TOOLPULSE_PROBE_INSECURE_TLS";
/// Shorter texts are not looked for in messages: they would be found by chance, as `json` or `http`.
const MIN_SCRUBBED: usize = 6;
/// The start of a longer text is looked for as well, from this length on: messages quote a part of what is long.
const MIN_START: usize = 16;
/// The same at the end of a message that was cut.
const MIN_CUT: usize = 4;

/// What the operator lets probes carry. Copies are cheap.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// The secrets that probes may refer to.
    pub secrets: Secrets,
    /// Whether a probe may take any certificate.
    pub insecure_tls: bool,
}

impl Rules {
    /// Refuses what these rules never let a probe carry.
    ///
    /// # Errors
    /// Why; names the setting.
    pub fn judge(&self, kind: &ProbeKind) -> Result<(), String> {
        match kind.tls() {
            Some(tls) if tls.insecure_skip_verify && !self.insecure_tls => Err(format!(
                "insecure_skip_verify is not permitted here; the operator permits it with {INSECURE_SETTING}"
            )),
            _ => Ok(()),
        }
    }

    /// The references of a spec that could not be used now. They may come later, so they are no faults.
    pub async fn warnings(&self, spec: &ToolSpec) -> Vec<SpecWarning> {
        let mut found = Vec::new();
        for (i, probe) in spec.probes.iter().enumerate() {
            let field = format!("probes[{i}].{}", probe.kind.label());
            let mut unusable = |field: String, message: String| {
                found.push(SpecWarning { field, code: "SECRET_NOT_USABLE", message });
            };
            let Some(audience) = audience_of(&probe.kind) else { continue };
            for (j, header) in probe.kind.headers().iter().enumerate() {
                if let Some(name) = header.value.reference()
                    && let Err(why) = self.header(name, &audience).await
                {
                    unusable(format!("{field}.headers[{j}]"), why);
                }
            }
            let Some(tls) = probe.kind.tls() else { continue };
            if let Some(ca) = &tls.ca
                && let Err(why) = self.roots(ca, &audience).await
            {
                unusable(format!("{field}.tls.ca_ref"), why);
            }
            if let Some(client) = &tls.client
                && let Err(why) = self.identity(client, &audience).await
            {
                unusable(format!("{field}.tls.client_key_ref"), why);
            }
        }
        found
    }

    /// A secret that is the value of a header.
    async fn header(&self, name: &SecretName, audience: &Audience) -> Result<Secret, String> {
        let secret = self.secrets.get(name, Some(audience)).await?;
        fits_header(secret.expose()).map_err(|why| format!("secret '{name}' can't be a header: it {why}"))?;
        Ok(secret)
    }

    /// Whom to trust for a host. That has a rule too: else an owner could have a secret told to whoever holds the key of
    /// some authority that was mounted for another host.
    async fn roots(&self, ca: &SecretName, audience: &Audience) -> Result<RootCertStore, String> {
        let mut roots = RootCertStore::empty();
        for cert in self.certificates(ca, Some(audience)).await? {
            roots
                .add(cert)
                .map_err(|_| format!("secret '{ca}' holds a certificate that can't be trusted"))?;
        }
        Ok(roots)
    }

    async fn certificates(
        &self,
        name: &SecretName,
        audience: Option<&Audience>,
    ) -> Result<Vec<CertificateDer<'static>>, String> {
        let pem = self.secrets.get(name, audience).await?;
        // The parser's errors may quote the content.
        let certs: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.expose().as_bytes()).collect();
        match certs {
            Ok(certs) if !certs.is_empty() => Ok(certs),
            _ => Err(format!("secret '{name}' holds no certificates in PEM")),
        }
    }

    async fn identity(
        &self,
        client: &ClientIdentity,
        audience: &Audience,
    ) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), String> {
        let key = self.secrets.get(&client.key, Some(audience)).await?;
        let key = PrivateKeyDer::from_pem_slice(key.expose().as_bytes())
            .map_err(|_| format!("secret '{}' holds no private key in PEM", client.key))?;
        // It is of no use without its key, and no secret.
        Ok((self.certificates(&client.cert, None).await?, key))
    }
}

/// Whom a probe tells what it carries; none for a kind that carries nothing.
fn audience_of(kind: &ProbeKind) -> Option<Audience> {
    Some(audience(kind.endpoint()?, kind.encrypts(), kind.tls()))
}

/// Whom a request to `target` tells what it carries.
pub(super) fn audience(target: &HostPort, encrypts: bool, tls: Option<&Tls>) -> Audience {
    let named = tls.and_then(|tls| tls.server_name.clone());
    let verified = !tls.is_some_and(|tls| tls.insecure_skip_verify);
    Audience {
        hosts: std::iter::once(target.host.clone()).chain(named).collect(),
        port: target.port,
        encrypted: encrypts && verified,
    }
}

/// The headers of a run. What they say is noted, so that no message repeats it.
pub(super) async fn headers(
    rules: &Rules,
    given: &[Header],
    audience: &Audience,
    progress: &mut Progress,
) -> Result<HeaderMap, Failure> {
    let mut map = HeaderMap::with_capacity(given.len());
    let broken = |name: &str| Failure::new(ErrorClass::Protocol, format!("header '{name}' can't be sent"));
    for Header { name, value } in given {
        let secret = match value {
            probe::HeaderValue::Literal(text) => text.clone(),
            probe::HeaderValue::Secret(reference) | probe::HeaderValue::Bearer(reference) => rules
                .header(reference, audience)
                .await
                .map_err(|why| Failure::new(ErrorClass::Secret, why))?,
        };
        let mut line = match value {
            probe::HeaderValue::Bearer(_) => HeaderValue::try_from(format!("Bearer {}", secret.expose())),
            _ => HeaderValue::try_from(secret.expose()),
        }
        .map_err(|_| broken(name))?;
        line.set_sensitive(true);
        progress.told.push(secret);
        map.insert(HeaderName::try_from(name.as_str()).map_err(|_| broken(name))?, line);
    }
    Ok(map)
}

/// The configuration of a connection whose TLS is not as always.
pub(super) async fn tls_config(
    rules: &Rules,
    tls: &Tls,
    audience: &Audience,
    public: &Arc<RootCertStore>,
    alpn: &[u8],
) -> Result<ClientConfig, Failure> {
    let failed = |why: String| Failure::new(ErrorClass::Secret, why);
    if tls.insecure_skip_verify && !rules.insecure_tls {
        let text =
            format!("insecure_skip_verify is not permitted; the operator permits it with {INSECURE_SETTING}");
        return Err(Failure::new(ErrorClass::Blocked, text));
    }
    let roots = match &tls.ca {
        Some(ca) => Arc::new(rules.roots(ca, audience).await.map_err(failed)?),
        None => Arc::clone(public),
    };
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|e| Failure::new(ErrorClass::Tls, e.to_string()))?;
    let builder = if tls.insecure_skip_verify {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider)))
    } else {
        builder.with_root_certificates(roots)
    };
    let mut config = match &tls.client {
        None => builder.with_no_client_auth(),
        Some(client) => {
            let (chain, key) = rules.identity(client, audience).await.map_err(failed)?;
            builder.with_client_auth_cert(chain, key).map_err(|_| {
                failed(format!(
                    "secrets '{}' and '{}' are no certificate and its key",
                    client.cert, client.key
                ))
            })?
        }
    };
    config.alpn_protocols = vec![alpn.to_vec()];
    // Each run stands alone: a resumed session would skip the certificate.
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// Takes any certificate, of whoever holds its key.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// What a probe says by itself that may be a credential, besides its headers.
pub(super) fn said(kind: &ProbeKind) -> Vec<Secret> {
    let (url, body) = match kind {
        ProbeKind::Http(HttpProbe { url, method: Method::Post(body), .. }) => (url, Some(body.clone())),
        ProbeKind::Http(HttpProbe { url, .. }) | ProbeKind::Mcp(McpProbe { url, .. }) => (url, None),
        ProbeKind::Grpc(_) | ProbeKind::Tcp(_) | ProbeKind::Report => return Vec::new(),
    };
    let query = url.query();
    let values = query.into_iter().flat_map(|q| q.split('&')).filter_map(|pair| pair.split_once('='));
    let values = values.map(|(_, value)| Secret::new(value));
    body.into_iter().chain(query.map(Secret::new)).chain(values).collect()
}

/// A message without what the target was told: targets repeat it.
pub(super) fn scrub(message: &str, told: &[Secret]) -> String {
    let mut texts: Vec<String> = Vec::new();
    for secret in told {
        let whole = secret.expose();
        // `Basic abc` is repeated as `abc`, and what is quoted is escaped.
        let part = whole.split_once(' ').map_or("", |(_, part)| part);
        for text in [whole, part] {
            texts.push(text.to_owned());
            texts.push(text.escape_debug().to_string());
        }
    }
    texts.retain(|text| text.len() >= MIN_SCRUBBED);
    // The longest first, so that none is taken apart by another.
    texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
    texts.dedup();
    let was_cut = message.chars().count() >= probe::MAX_MESSAGE;
    let mut message = message.to_owned();
    for text in &texts {
        let starts = |min: usize| {
            let longest = text.len().min(message.len());
            (min..=longest).rev().filter(|n| text.is_char_boundary(*n)).map(|n| &text[..n])
        };
        let found = starts(MIN_START.min(text.len())).find(|start| message.contains(start));
        let cut = starts(MIN_CUT).find(|start| was_cut && message.ends_with(start));
        if let Some(found) = found {
            message = message.replace(found, HIDDEN);
        } else if let Some(cut) = cut {
            message = format!("{}{HIDDEN}", &message[..message.len() - cut.len()]);
        }
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_do_not_repeat_what_was_told() {
        let told = |texts: &[&str]| texts.iter().map(|t| Secret::new(*t)).collect::<Vec<_>>();
        let long = "0123456789abcdefghij";
        let quoted = format!("said '{}...'", &long[..17]);
        let filled = "-".repeat(probe::MAX_MESSAGE - 5);
        let cut = format!("{filled}abcde");
        let hidden = format!("{filled}[hidden]");
        let cases: [(&str, &[&str], &str); 11] = [
            ("bad token abcdef", &["abcdef"], "bad token [hidden]"),
            ("bad token abcdef", &["Bearer abcdef"], "bad token [hidden]"),
            ("abcdefgh and abcdef", &["abcdef", "abcdefgh"], "[hidden] and [hidden]"),
            (&quoted, &[long], "said '[hidden]...'"),
            (&cut, &["abcdefgh"], &hidden),
            ("not cut abcde", &["abcdefgh"], "not cut abcde"),
            ("quoted 'a\\'bcdef'", &["a'bcdef"], "quoted '[hidden]'"),
            ("as always", &["a", ""], "as always"),
            ("http status 503", &["http"], "http status 503"),
            ("nothing", &[], "nothing"),
            ("twice abcdef abcdef", &["abcdef"], "twice [hidden] [hidden]"),
        ];
        for (message, texts, expect) in cases {
            assert_eq!(scrub(message, &told(texts)), expect, "{message}");
        }
    }
}
