//! The egress guard: which addresses a probe may connect to.
//!
//! Owners choose targets and the server connects to them, so without a guard every registration would be a way into
//! the server's own network. What counts is the resolved address, never the text: `127.1` and `2130706433` are texts
//! that a resolver turns into 127.0.0.1.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    sync::Arc,
};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::core::{name::quote, probe::HostPort};

/// The setting that permits further targets; every refusal names it.
pub const ALLOW_SETTING: &str = "TOOLPULSE_PROBE_ALLOW";
/// The setting that forbids targets.
pub const DENY_SETTING: &str = "TOOLPULSE_PROBE_DENY";
/// The setting that holds the mode.
pub const MODE_SETTING: &str = "TOOLPULSE_PROBE_EGRESS";

/// What is reachable without an entry in the allow-list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Public addresses.
    #[default]
    Strict,
    /// Private ranges as well: where tools live in one cluster with the server.
    Cluster,
}

/// The mode and the operator's lists. Copies are cheap.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    mode: Mode,
    allow: Arc<[Entry]>,
    /// Wins over all that is allowed.
    deny: Arc<[Entry]>,
    /// Where this server itself listens.
    own: Arc<[SocketAddr]>,
}

/// One entry of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    who: Who,
    /// None: every port.
    port: Option<u16>,
}

/// Whom an entry means.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Who {
    Net(IpNet),
    /// Lower case, without a trailing dot.
    Host(String),
    /// With its leading dot, lower case.
    Suffix(String),
    /// Everybody, at the entry's port; only to forbid it.
    Anybody,
}

/// What an address is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Public,
    Private,
    Loopback,
    /// Neither public nor forbidden: only what the allow-list names.
    Special,
    Never(&'static str),
}

impl Policy {
    /// Parses the allow-list: `10.0.0.0/8`, `::1`, `tools.internal`, `*.internal`, each with or without `:port`
    /// (`[fd00::/8]:443`). Blank entries are skipped.
    ///
    /// # Errors
    /// The entry that is wrong, and what would be right.
    pub fn parse(mode: Mode, allow: &[String]) -> Result<Self, String> {
        Ok(Self { mode, allow: entries(allow, Entry::parse)?, ..Self::default() })
    }

    /// The same, without the targets of a deny-list, whatever else permits them: entries as in the allow-list, and `*:port`.
    /// A host is denied by its name, an address by a net, however a name or an IPv6 address leads to it.
    ///
    /// # Errors
    /// The entry that is wrong, and what would be right.
    pub fn denying(self, deny: &[String]) -> Result<Self, String> {
        Ok(Self { deny: entries(deny, Entry::parse_denied)?, ..self })
    }

    /// The same, and never to one of these listeners of this server: a probe of ourselves would let owners speak with the
    /// admin port, and be an answer that says nothing.
    #[must_use]
    pub fn without(self, own: &[SocketAddr]) -> Self {
        Self { own: own.into(), ..self }
    }

    /// For registration: refuses what can be known without a resolver, which is address literals, `localhost`, and what the
    /// deny-list names.
    ///
    /// # Errors
    /// Why the target is refused; names the setting that would permit it.
    pub fn check_literal(&self, target: &HostPort) -> Result<(), String> {
        check_zone(&target.host)?;
        if let Ok(ip) = target.host.parse::<IpAddr>() {
            return self.check(&target.host, SocketAddr::new(ip, target.port));
        }
        let name = normal(&target.host);
        if name == "localhost" || name.ends_with(".localhost") {
            let v6 = SocketAddr::new(Ipv6Addr::LOCALHOST.into(), target.port);
            let v4 = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), target.port);
            // One permitted family is enough: a run drops the other one.
            return self.check(&target.host, v6).or_else(|_| self.check(&target.host, v4));
        }
        if self.deny.iter().any(|e| e.matches_name(&name, target.port)) {
            return Err(denied(&quote(&target.to_string())));
        }
        Ok(())
    }

    /// Whether a probe of `host` may connect to `addr`, one of the addresses that `host` resolved to.
    ///
    /// # Errors
    /// Why not; names the setting that would permit it.
    pub fn check(&self, host: &str, addr: SocketAddr) -> Result<(), String> {
        check_zone(host)?;
        if let SocketAddr::V6(v6) = addr
            && v6.scope_id() != 0
        {
            return Err(format!("probe target {addr} has a zone id; {UNREACHABLE}"));
        }
        let faces = faces(addr.ip());
        let classes = || faces.iter().map(|ip| classify(*ip));
        if let Some(what) = classes().find_map(|c| if let Class::Never(what) = c { Some(what) } else { None })
        {
            return Err(format!("probe target {} is a {what} address; {UNREACHABLE}", show(host, addr)));
        }
        if faces.iter().any(|ip| self.is_own(SocketAddr::new(*ip, addr.port()))) {
            return Err(format!(
                "probe target {} is this server's own listener; {UNREACHABLE}",
                show(host, addr)
            ));
        }
        let name = normal(host);
        let forbids = |e: &Entry| {
            e.matches(addr, &name)
                || faces.iter().any(|ip| e.matches(SocketAddr::new(*ip, addr.port()), &name))
        };
        if self.deny.iter().any(forbids) {
            return Err(denied(&show(host, addr)));
        }
        if faces.iter().all(|ip| self.permits(*ip, host, addr.port())) || self.names(addr, host) {
            return Ok(());
        }
        let (what, cure) = match classes().find(|c| *c != Class::Public) {
            Some(Class::Loopback) => ("loopback", ""),
            Some(Class::Private) => ("private", " (or set TOOLPULSE_PROBE_EGRESS=cluster)"),
            _ => ("special-purpose", ""),
        };
        let target = show(host, addr);
        Err(format!(
            "probe target {target} is a {what} address; to permit it, name it in {ALLOW_SETTING}{cure}"
        ))
    }

    fn permits(&self, ip: IpAddr, host: &str, port: u16) -> bool {
        match classify(ip) {
            Class::Public => true,
            Class::Private if self.mode == Mode::Cluster => true,
            Class::Never(_) => false,
            _ => self.names(SocketAddr::new(ip, port), host),
        }
    }

    /// Whether one of our listeners takes connections to an address: one that is bound to all addresses takes those to any
    /// of this machine's.
    fn is_own(&self, addr: SocketAddr) -> bool {
        self.own.iter().filter(|own| own.port() == addr.port()).any(|own| match own.ip().to_canonical() {
            ip if ip.is_unspecified() => is_local(addr.ip()),
            ip => ip == addr.ip(),
        })
    }

    fn names(&self, addr: SocketAddr, host: &str) -> bool {
        let host = normal(host);
        self.allow.iter().any(|e| e.matches(addr, &host))
    }
}

/// Whether an address is one of this machine's: only such a one can be bound.
fn is_local(ip: IpAddr) -> bool {
    ip.is_loopback() || UdpSocket::bind((ip, 0)).is_ok()
}

const UNREACHABLE: &str = "probes never reach such addresses, and TOOLPULSE_PROBE_ALLOW can't permit them";

fn denied(target: &str) -> String {
    format!("probe target {target} is denied by the operator with {DENY_SETTING}")
}

/// The entries of a list; blank ones are skipped.
fn entries(list: &[String], parse: fn(&str) -> Result<Entry, String>) -> Result<Arc<[Entry]>, String> {
    list.iter().map(|e| e.trim()).filter(|e| !e.is_empty()).map(parse).collect()
}

impl Entry {
    fn parse(text: &str) -> Result<Self, String> {
        Self::read(text, permissible).map_err(|why| format!("{ALLOW_SETTING} entry {} {why}", quote(text)))
    }

    fn parse_denied(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("{DENY_SETTING} entry {} {why}", quote(text));
        match text.strip_prefix("*:").map(str::parse) {
            None => Self::read(text, Ok).map_err(|why| wrong(&why)),
            Some(Ok(port)) if port != 0 => Ok(Self { who: Who::Anybody, port: Some(port) }),
            Some(_) => Err(wrong(PORTS)),
        }
    }

    /// `may`: which nets a list may name.
    fn read(text: &str, may: fn(IpNet) -> Result<IpNet, String>) -> Result<Self, String> {
        let net = |text: &str| net(text).map(|net| net.and_then(may));
        if let Some(who) = net(text) {
            return who.map(|n| Self { who: Who::Net(n), port: None });
        }
        let (who, port) = match text.strip_prefix('[').map(|rest| rest.split_once(']')) {
            Some(Some((who, ""))) => (who, None),
            Some(Some((who, rest))) => (who, Some(rest.strip_prefix(':').unwrap_or(rest))),
            Some(None) => return Err("has no closing bracket".to_owned()),
            None => text.rsplit_once(':').map_or((text, None), |(who, port)| (who, Some(port))),
        };
        let port = match port.map(str::parse) {
            None => None,
            Some(Ok(port)) if port != 0 => Some(port),
            Some(_) => return Err(PORTS.to_owned()),
        };
        let who = match net(who) {
            Some(Ok(IpNet::V6(_))) if !text.starts_with('[') => {
                return Err(BRACKETS.to_owned());
            }
            Some(Ok(net)) => Who::Net(net),
            Some(Err(why)) => return Err(why),
            None => host(who)
                .ok_or("must be an address, a CIDR, a host or *.suffix, each with or without :port")?,
        };
        Ok(Self { who, port })
    }

    fn matches(&self, addr: SocketAddr, host: &str) -> bool {
        if self.port.is_some_and(|p| p != addr.port()) {
            return false;
        }
        match &self.who {
            Who::Net(net) => net.contains(&addr.ip()),
            Who::Host(name) => name == host,
            Who::Suffix(suffix) => host.len() > suffix.len() && host.ends_with(suffix.as_str()),
            Who::Anybody => true,
        }
    }

    /// Whether it means a host whose addresses are not known.
    fn matches_name(&self, host: &str, port: u16) -> bool {
        // A name is never matched by a net, whatever it resolves to.
        let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port);
        !matches!(self.who, Who::Net(_)) && self.matches(any, host)
    }
}

/// Whether an entry names a host by its text, without a look at its addresses. What is no entry names nobody.
pub(super) fn names_host(entry: &str, host: &str, port: u16) -> bool {
    let Ok(entry) = Entry::parse(entry) else { return false };
    match host.parse::<IpAddr>() {
        Ok(ip) => entry.matches(SocketAddr::new(ip, port), &normal(host)),
        Err(_) => entry.matches_name(&normal(host), port),
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Strict => "strict",
            Self::Cluster => "cluster",
        })
    }
}

/// An address or a CIDR; none where the text is neither.
fn net(text: &str) -> Option<Result<IpNet, String>> {
    let net = match text.parse::<IpNet>() {
        Ok(net) => net,
        Err(_) => IpNet::from(text.parse::<IpAddr>().ok()?),
    };
    if net.addr() != net.network() {
        return Some(Err(format!("has bits beyond its prefix; {} would be right", net.trunc())));
    }
    if let IpNet::V6(v6) = net
        && matches!(v6.addr().segments(), [0, 0, 0, 0, 0, 0, high, low] if high != 0 || low > 1)
    {
        return Some(Err(BRACKETS.to_owned()));
    }
    if let IpNet::V6(v6) = net
        && v6.prefix_len() >= 96
        && let Some(v4) = v6.addr().to_ipv4_mapped()
    {
        return Some(Err(format!("must be written as IPv4: {v4}/{}", v6.prefix_len() - 96)));
    }
    Some(Ok(net))
}

const BRACKETS: &str = "must have its IPv6 address in brackets, as in [::1]:80";
const PORTS: &str = "must end with a port from 1 to 65535";

/// A net that an allow-list may name.
fn permissible(net: IpNet) -> Result<IpNet, String> {
    let forbidden = match net {
        IpNet::V4(net) => {
            V4.iter().find(|(n, c)| n.contains(&net) && matches!(c, Class::Never(_))).map(|r| r.1)
        }
        IpNet::V6(net) => {
            V6.iter().find(|(n, c)| n.contains(&net) && matches!(c, Class::Never(_))).map(|r| r.1)
        }
    };
    match forbidden {
        Some(Class::Never(what)) => Err(format!("names {what} addresses, which probes never reach")),
        _ => Ok(net),
    }
}

/// A host or `*.suffix`; none where the text can't be a DNS name.
fn host(text: &str) -> Option<Who> {
    let name = normal(text.strip_prefix("*.").unwrap_or(text));
    let label = |l: &str| {
        (1..=63).contains(&l.len()) && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    // `127.1` and `0x7f000001` are addresses to a resolver: to permit them as names would be a trap.
    let last = name.rsplit('.').next().unwrap_or_default();
    let numeric = last.bytes().all(|b| b.is_ascii_digit())
        || last.strip_prefix("0x").is_some_and(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()));
    if name.len() > 253 || numeric || !name.split('.').all(label) {
        return None;
    }
    Some(if text.starts_with("*.") { Who::Suffix(format!(".{name}")) } else { Who::Host(name) })
}

fn normal(host: &str) -> String {
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

fn show(host: &str, addr: SocketAddr) -> String {
    match host.parse::<IpAddr>() {
        Ok(_) => addr.to_string(),
        Err(_) => format!("{} ({addr})", quote(host)),
    }
}

fn check_zone(host: &str) -> Result<(), String> {
    if host.contains('%') {
        return Err(format!("probe target {} has a zone id; {UNREACHABLE}", quote(host)));
    }
    Ok(())
}

/// The addresses that a packet to `ip` can end at: an IPv6 address can hold an IPv4 one, and a gateway unwraps it.
fn faces(ip: IpAddr) -> Vec<IpAddr> {
    let v6 = match ip {
        IpAddr::V4(_) => return vec![ip],
        IpAddr::V6(v6) => v6,
    };
    let v4 = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        IpAddr::V4(Ipv4Addr::new(a, b, c, d))
    };
    match v6.segments() {
        // Unspecified and loopback only look like IPv4-compatible ones.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => vec![ip],
        // IPv4-compatible, IPv4-mapped, IPv4-translated, NAT64.
        [0, 0, 0, 0, 0, 0, h, l]
        | [0, 0, 0, 0, 0, 0xffff, h, l]
        | [0, 0, 0, 0, 0xffff, 0, h, l]
        | [0x64, 0xff9b, 0, 0, 0, 0, h, l]
        // 6to4.
        | [0x2002, h, l, ..] => vec![v4(h, l)],
        // Teredo: the server's address, and the client's with its bits flipped.
        [0x2001, 0, h, l, .., ch, cl] => vec![v4(h, l), v4(!ch, !cl)],
        // ISATAP under any prefix, and the NAT64 prefix for local use.
        [.., 0 | 0x200, 0x5efe, h, l] | [0x64, 0xff9b, 1, .., h, l] => vec![ip, v4(h, l)],
        _ => vec![ip],
    }
}

fn classify(ip: IpAddr) -> Class {
    match ip {
        IpAddr::V4(ip) => V4.iter().find(|(n, _)| n.contains(&ip)).map_or(Class::Public, |r| r.1),
        IpAddr::V6(ip) => V6.iter().find(|(n, _)| n.contains(&ip)).map_or(Class::Special, |r| r.1),
    }
}

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

const fn v6(head: [u16; 4], prefix: u8) -> Ipv6Net {
    let [a, b, c, d] = head;
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0), prefix)
}

const METADATA: Class = Class::Never("metadata");
const DOCUMENTATION: Class = Class::Never("documentation");

/// IANA's special-purpose registry and the clouds' metadata addresses. The first row that matches counts; what none
/// matches is public.
const V4: [(Ipv4Net, Class); 22] = [
    (v4(169, 254, 169, 254, 32), METADATA),
    (v4(100, 100, 100, 200, 32), METADATA),
    (v4(192, 0, 0, 192, 32), METADATA),
    (v4(168, 63, 129, 16, 32), METADATA),
    (v4(0, 0, 0, 0, 8), Class::Never("unspecified")),
    (v4(169, 254, 0, 0, 16), Class::Never("link-local")),
    (v4(224, 0, 0, 0, 4), Class::Never("multicast")),
    (v4(255, 255, 255, 255, 32), Class::Never("broadcast")),
    (v4(240, 0, 0, 0, 4), Class::Never("reserved")),
    (v4(192, 0, 2, 0, 24), DOCUMENTATION),
    (v4(198, 51, 100, 0, 24), DOCUMENTATION),
    (v4(203, 0, 113, 0, 24), DOCUMENTATION),
    (v4(127, 0, 0, 0, 8), Class::Loopback),
    (v4(10, 0, 0, 0, 8), Class::Private),
    (v4(172, 16, 0, 0, 12), Class::Private),
    (v4(192, 168, 0, 0, 16), Class::Private),
    (v4(100, 64, 0, 0, 10), Class::Private),
    (v4(192, 0, 0, 0, 24), Class::Special),
    (v4(192, 31, 196, 0, 24), Class::Special),
    (v4(192, 88, 99, 0, 24), Class::Special),
    (v4(192, 175, 48, 0, 24), Class::Special),
    (v4(198, 18, 0, 0, 15), Class::Special),
];

/// The same for IPv6, where only 2000::/3 is public and what no row matches is not.
const V6: [(Ipv6Net, Class); 15] = [
    (Ipv6Net::new_assert(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254), 128), METADATA),
    (Ipv6Net::new_assert(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254), 128), METADATA),
    (Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 128), Class::Never("unspecified")),
    (Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128), Class::Loopback),
    (v6([0xfe80, 0, 0, 0], 10), Class::Never("link-local")),
    (v6([0xfec0, 0, 0, 0], 10), Class::Never("site-local")),
    (v6([0xff00, 0, 0, 0], 8), Class::Never("multicast")),
    (v6([0x2001, 0xdb8, 0, 0], 32), DOCUMENTATION),
    (v6([0x3fff, 0, 0, 0], 20), DOCUMENTATION),
    (v6([0xfc00, 0, 0, 0], 7), Class::Private),
    (v6([0x2001, 0, 0, 0], 23), Class::Special),
    (v6([0x2620, 0x4f, 0x8000, 0], 48), Class::Special),
    // Only as a net that an allow-list entry could lie in: faces() unwraps its addresses before.
    (v6([0x2002, 0, 0, 0], 16), Class::Special),
    (v6([0x64, 0xff9b, 1, 0], 48), Class::Special),
    (v6([0x2000, 0, 0, 0], 3), Class::Public),
];

#[cfg(test)]
mod tests;
