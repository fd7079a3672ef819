//! The guard's tables: literals against both modes, and entries against texts.

use proptest::prelude::*;

use super::*;

/// What both modes say: permitted at all, in the cluster only, with an allow-list only, or never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expect {
    Public,
    Cluster,
    Listed,
    Never,
}
use Expect::{Cluster, Listed, Never, Public};

const LITERALS: &[(&str, Expect)] = &[
    // Public, and the last address before and the first after a range that is not.
    ("1.1.1.1", Public),
    ("8.8.8.8", Public),
    ("9.255.255.255", Public),
    ("11.0.0.0", Public),
    ("100.63.255.255", Public),
    ("100.128.0.0", Public),
    ("126.255.255.255", Public),
    ("128.0.0.0", Public),
    ("169.253.255.255", Public),
    ("169.255.0.0", Public),
    ("172.15.255.255", Public),
    ("172.32.0.0", Public),
    ("192.167.255.255", Public),
    ("192.169.0.0", Public),
    ("198.17.255.255", Public),
    ("198.20.0.0", Public),
    ("223.255.255.255", Public),
    ("2606:4700:4700::1111", Public),
    ("2001:4860:4860::8888", Public),
    ("2001:200::1", Public),
    ("3ffe::1", Public),
    // Private.
    ("10.0.0.0", Cluster),
    ("10.255.255.255", Cluster),
    ("172.16.0.0", Cluster),
    ("172.31.255.255", Cluster),
    ("192.168.0.1", Cluster),
    ("192.168.255.255", Cluster),
    ("100.64.0.0", Cluster),
    ("100.127.255.255", Cluster),
    ("fc00::1", Cluster),
    ("fd12:3456::1", Cluster),
    ("fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Cluster),
    // Loopback and special-purpose.
    ("127.0.0.1", Listed),
    ("127.1.2.3", Listed),
    ("127.255.255.255", Listed),
    ("::1", Listed),
    ("192.0.0.1", Listed),
    ("192.88.99.1", Listed),
    ("198.18.0.1", Listed),
    ("198.19.255.255", Listed),
    ("100::1", Listed),
    ("2001:2::1", Listed),
    ("2001:10::1", Listed),
    ("4000::1", Listed),
    ("5f00::1", Listed),
    ("64:ff9b:1::808:808", Listed),
    // Never.
    ("0.0.0.0", Never),
    ("0.1.2.3", Never),
    ("::", Never),
    ("169.254.0.1", Never),
    ("169.254.169.254", Never),
    ("169.254.170.2", Never),
    ("100.100.100.200", Never),
    ("192.0.0.192", Never),
    ("168.63.129.16", Never),
    ("192.0.2.1", Never),
    ("198.51.100.7", Never),
    ("203.0.113.9", Never),
    ("224.0.0.1", Never),
    ("239.255.255.255", Never),
    ("240.0.0.1", Never),
    ("255.255.255.255", Never),
    ("fe80::1", Never),
    ("febf::1", Never),
    ("fec0::1", Never),
    ("ff02::1", Never),
    ("fd00:ec2::254", Never),
    ("fd20:ce::254", Never),
    ("2001:db8::1", Never),
    ("3fff::1", Never),
    // IPv4 inside IPv6: mapped, compatible, translated, NAT64, 6to4, Teredo, ISATAP.
    ("::ffff:8.8.8.8", Public),
    ("::ffff:10.0.0.1", Cluster),
    ("::ffff:127.0.0.1", Listed),
    ("::ffff:7f00:1", Listed),
    ("::ffff:0.0.0.0", Never),
    ("::ffff:169.254.169.254", Never),
    ("::127.0.0.1", Listed),
    ("::169.254.169.254", Never),
    ("::8.8.8.8", Public),
    ("::2", Never),
    ("::ffff:0:127.0.0.1", Listed),
    ("::ffff:0:169.254.169.254", Never),
    ("64:ff9b::808:808", Public),
    ("64:ff9b::a00:1", Cluster),
    ("64:ff9b::7f00:1", Listed),
    ("64:ff9b::a9fe:a9fe", Never),
    ("64:ff9b:1::a9fe:a9fe", Never),
    ("2002:808:808::1", Public),
    ("2002:a00:1::1", Cluster),
    ("2002:7f00:1::1", Listed),
    ("2002:a9fe:a9fe::1", Never),
    ("2001:0:808:808::f7f7:f7f7", Public),
    ("2001:0:808:808::f5ff:fffe", Cluster),
    ("2001:0:a00:1::f7f7:f7f7", Cluster),
    ("2001:0:808:808::80ff:fffe", Listed),
    ("2001:0:808:808::5601:5601", Never),
    ("2606:4700::5efe:8.8.8.8", Public),
    ("2606:4700::5efe:127.0.0.1", Listed),
    ("2606:4700::200:5efe:169.254.169.254", Never),
    ("fe80::5efe:8.8.8.8", Never),
];

fn policy(mode: Mode, allow: &[&str]) -> Policy {
    Policy::parse(mode, &allow.iter().map(|e| (*e).to_owned()).collect::<Vec<_>>()).unwrap()
}

fn target(host: &str) -> HostPort {
    HostPort { host: host.to_owned(), port: 443 }
}

/// A policy that permits whatever can be permitted.
fn everything() -> Policy {
    policy(Mode::Strict, &["0.0.0.0/0", "::/0"])
}

fn verdict(ip: IpAddr) -> Expect {
    let may = |policy: Policy| policy.check("name", SocketAddr::new(ip, 443)).is_ok();
    let all = [may(policy(Mode::Strict, &[])), may(policy(Mode::Cluster, &[])), may(everything())];
    match all {
        [true, true, true] => Public,
        [false, true, true] => Cluster,
        [false, false, true] => Listed,
        [false, false, false] => Never,
        odd => panic!("{ip}: a wider policy permits less: {odd:?}"),
    }
}

#[test]
fn literals() {
    for (text, expect) in LITERALS {
        assert_eq!(verdict(text.parse().unwrap()), *expect, "{text}");
        let literal = policy(Mode::Strict, &[]).check_literal(&target(text));
        assert_eq!(literal.is_ok(), *expect == Public, "{text}: {literal:?}");
    }
}

#[test]
fn no_host_entry_opens_what_is_never_reachable() {
    let policy = policy(Mode::Cluster, &["name", "*.internal", "0.0.0.0/0", "::/0"]);
    for (text, _) in LITERALS.iter().filter(|(_, e)| *e == Never) {
        for host in ["name", "a.internal", text] {
            let why = policy.check(host, SocketAddr::new(text.parse().unwrap(), 80)).unwrap_err();
            assert!(why.contains(ALLOW_SETTING), "{why}");
        }
    }
}

#[test]
fn refusals_name_the_cure() {
    let cases = [
        (
            "127.0.0.1",
            "probe target 127.0.0.1:443 is a loopback address; to permit it, name it in TOOLPULSE_PROBE_ALLOW",
        ),
        (
            "10.0.0.7",
            "probe target 10.0.0.7:443 is a private address; to permit it, name it in TOOLPULSE_PROBE_ALLOW (or set \
             TOOLPULSE_PROBE_EGRESS=cluster)",
        ),
        (
            "169.254.169.254",
            "probe target 169.254.169.254:443 is a metadata address; probes never reach such addresses, and \
             TOOLPULSE_PROBE_ALLOW can't permit them",
        ),
        (
            "fe80::1%eth0",
            "probe target 'fe80::1%eth0' has a zone id; probes never reach such addresses, and \
             TOOLPULSE_PROBE_ALLOW can't permit them",
        ),
        (
            "LocalHost.",
            "probe target 'LocalHost.' (127.0.0.1:443) is a loopback address; to permit it, name it in \
             TOOLPULSE_PROBE_ALLOW",
        ),
    ];
    for (host, text) in cases {
        assert_eq!(policy(Mode::Strict, &[]).check_literal(&target(host)).unwrap_err(), text);
    }
}

#[test]
fn names_are_left_to_the_resolver() {
    for host in ["example.com", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0", "notlocalhost"] {
        assert_eq!(policy(Mode::Strict, &[]).check_literal(&target(host)), Ok(()), "{host}");
        let resolved = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 80);
        assert!(policy(Mode::Cluster, &[]).check(host, resolved).is_err(), "{host}");
    }
    assert_eq!(policy(Mode::Strict, &["::1"]).check_literal(&target("localhost")), Ok(()));
    assert_eq!(policy(Mode::Strict, &["127.0.0.1:443"]).check_literal(&target("localhost")), Ok(()));
    assert!(policy(Mode::Strict, &["127.0.0.1:80"]).check_literal(&target("localhost")).is_err());
}

#[test]
fn a_resolved_zone_is_refused() {
    let zoned = std::net::SocketAddrV6::new("2606:4700::1".parse().unwrap(), 80, 0, 3);
    assert!(everything().check("name", zoned.into()).is_err());
}

#[test]
fn entries_permit() {
    // Entry, host, address, permitted.
    let cases = [
        ("127.0.0.0/8", "x", "127.9.9.9:80", true),
        ("127.0.0.0/8", "x", "[::1]:80", false),
        ("127.0.0.0/8", "x", "[::ffff:127.0.0.1]:80", true),
        (" 127.0.0.1 ", "x", "127.0.0.1:80", true),
        ("127.0.0.1", "x", "127.0.0.2:80", false),
        ("127.0.0.1:8080", "x", "127.0.0.1:8080", true),
        ("127.0.0.1:8080", "x", "127.0.0.1:8081", false),
        ("10.0.0.0/8:443", "x", "10.1.2.3:443", true),
        ("10.0.0.0/8:443", "x", "10.1.2.3:80", false),
        ("::1", "x", "[::1]:80", true),
        ("[::1]", "x", "[::1]:80", true),
        ("[::1]:80", "x", "[::1]:80", true),
        ("[::1]:80", "x", "[::1]:81", false),
        ("[fd00::/8]:443", "x", "[fd00::5]:443", true),
        ("fd00::/8", "x", "[fc00::5]:443", false),
        ("tools.internal", "tools.internal", "10.0.0.1:80", true),
        ("tools.internal", "TOOLS.internal.", "127.0.0.1:80", true),
        ("Tools.Internal.", "tools.internal", "127.0.0.1:80", true),
        ("tools.internal", "a.tools.internal", "10.0.0.1:80", false),
        ("tools.internal", "tools.internal.evil.example", "10.0.0.1:80", false),
        ("tools.internal:90", "tools.internal", "10.0.0.1:90", true),
        ("tools.internal:90", "tools.internal", "10.0.0.1:80", false),
        ("*.internal", "a.b.internal", "10.0.0.1:80", true),
        ("*.internal", "internal", "10.0.0.1:80", false),
        ("*.internal", "ainternal", "10.0.0.1:80", false),
        ("*.internal:90", "a.internal", "10.0.0.1:90", true),
        ("*.internal:90", "a.internal", "10.0.0.1:91", false),
        ("localhost", "localhost", "[::1]:80", true),
        ("", "", "127.0.0.1:80", false),
    ];
    for (entry, host, addr, permitted) in cases {
        let may = policy(Mode::Strict, &[entry]).check(host, addr.parse().unwrap());
        assert_eq!(may.is_ok(), permitted, "{entry} {host} {addr}: {may:?}");
    }
}

#[test]
fn wrong_entries_say_what_is_right() {
    let cases = [
        ("10.1.2.3/8", "10.0.0.0/8 would be right"),
        ("::ffff:127.0.0.1", "must be written as IPv4: 127.0.0.1/32"),
        ("[::1", "closing bracket"),
        ("[::1]80x", "a port from 1 to 65535"),
        ("::1:80:x", "a port from 1 to 65535"),
        ("a.example:0", "a port from 1 to 65535"),
        ("a.example:65536", "a port from 1 to 65535"),
        ("fd00::/8:443", "brackets"),
        ("127.1", "must be an address, a CIDR, a host or *.suffix"),
        ("0x7f000001", "must be an address, a CIDR, a host or *.suffix"),
        ("*.1", "must be an address, a CIDR, a host or *.suffix"),
        ("*", "must be an address, a CIDR, a host or *.suffix"),
        ("*:80", "must be an address, a CIDR, a host or *.suffix"),
        ("a.*.example", "must be an address, a CIDR, a host or *.suffix"),
        ("http://a.example", "a port from 1 to 65535"),
        ("a b", "must be an address, a CIDR, a host or *.suffix"),
        ("10.0.0.0/33", "must be an address, a CIDR, a host or *.suffix"),
        ("169.254.0.0/17", "names link-local addresses, which probes never reach"),
        ("169.254.169.254", "names metadata addresses, which probes never reach"),
        ("fe80::/16:80", "names link-local addresses"),
        ("::1:80", "in brackets"),
        ("0.0.0.0", "names unspecified addresses"),
    ];
    for (entry, part) in cases {
        let why = Policy::parse(Mode::Strict, &[entry.to_owned()]).unwrap_err();
        assert!(why.contains(part) && why.starts_with(ALLOW_SETTING), "{entry}: {why}");
    }
}

#[test]
fn what_is_denied_is_denied_whatever_permits_it() {
    // Entry, host, address, denied.
    let cases = [
        ("8.8.8.0/24", "8.8.8.8", "8.8.8.8:80", true),
        ("8.8.8.0/24", "dns.example", "8.8.8.8:80", true),
        ("8.8.8.0/24", "x", "8.8.9.8:80", false),
        // However an IPv6 address leads there: mapped, NAT64, 6to4, ISATAP.
        ("8.8.8.0/24", "x", "[::ffff:8.8.8.8]:80", true),
        ("8.8.8.0/24", "x", "[64:ff9b::808:808]:80", true),
        ("8.8.8.0/24", "x", "[2002:808:808::1]:80", true),
        ("8.8.8.0/24", "x", "[2606:4700::5efe:8.8.8.8]:80", true),
        ("8.8.8.8:53", "x", "8.8.8.8:53", true),
        ("8.8.8.8:53", "x", "8.8.8.8:80", false),
        ("2606:4700::/32", "x", "[2606:4700::1111]:80", true),
        ("[2606:4700::/32]:443", "x", "[2606:4700::1111]:80", false),
        ("2002::/16", "x", "[2002:808:808::1]:80", true),
        ("10.0.0.0/8", "tools.internal", "10.1.2.3:80", true),
        ("tools.internal", "TOOLS.internal.", "10.1.2.3:80", true),
        ("tools.internal", "a.tools.internal", "10.1.2.3:80", false),
        ("*.internal:6379", "tools.internal", "10.1.2.3:6379", true),
        ("*.internal:6379", "tools.internal", "10.1.2.3:80", false),
        ("*:22", "tools.internal", "10.1.2.3:22", true),
        ("*:22", "x", "[2606:4700::1111]:22", true),
        ("*:22", "x", "8.8.8.8:2222", false),
        // What is never reachable anyway may be named.
        ("169.254.0.0/16", "x", "8.8.8.8:80", false),
        ("127.0.0.0/8", "localhost", "127.0.0.1:80", true),
    ];
    for (entry, host, addr, denied) in cases {
        let permits = ["tools.internal", "*.internal", "10.0.0.0/8", "127.0.0.0/8"];
        let policy = policy(Mode::Cluster, &permits).denying(&[entry.to_owned()]).unwrap();
        let may = policy.check(host, addr.parse().unwrap());
        assert_eq!(may.is_err(), denied, "{entry} {host} {addr}: {may:?}");
        if let Err(why) = may {
            assert!(why.contains("is denied") && why.ends_with(DENY_SETTING), "{why}");
        }
    }
    // At registration, as far as it can be known.
    let policy = policy(Mode::Strict, &["localhost"])
        .denying(&["*.evil.example".into(), "*:22".into(), "9.0.0.0/8".into(), "::1".into()])
        .unwrap();
    for (host, port, denied) in [
        ("a.evil.example", 80, true),
        ("A.EVIL.example.", 80, true),
        ("evil.example", 80, false),
        ("good.example", 22, true),
        ("9.9.9.9", 80, true),
        ("8.8.8.8", 80, false),
        ("localhost", 22, true),
        ("localhost", 80, false),
    ] {
        let may = policy.check_literal(&HostPort { host: host.into(), port });
        assert_eq!(may.is_err(), denied, "{host} {port}: {may:?}");
    }
}

#[test]
fn wrong_denials_say_what_is_right() {
    for (entry, part) in [
        ("10.1.2.3/8", "10.0.0.0/8 would be right"),
        ("*", "must be an address, a CIDR, a host or *.suffix"),
        ("*:", "a port from 1 to 65535"),
        ("*:65536", "a port from 1 to 65535"),
        ("[::1", "closing bracket"),
    ] {
        let why = Policy::default().denying(&[entry.to_owned()]).unwrap_err();
        assert!(why.contains(part) && why.starts_with(DENY_SETTING), "{entry}: {why}");
    }
}

/// The address of this machine that packets to the world leave from; none without a network.
fn outward() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect("192.88.99.1:9").ok()?;
    Some(socket.local_addr().unwrap().ip())
}

#[test]
fn our_own_listeners_are_never_reached() {
    let own = |listeners: &[&str]| {
        let listeners: Vec<SocketAddr> = listeners.iter().map(|l| l.parse().unwrap()).collect();
        everything().without(&listeners)
    };
    // Bound to, target, own.
    let cases = [
        ("127.0.0.1:50051", "127.0.0.1:50051", true),
        ("127.0.0.1:50051", "127.0.0.1:50052", false),
        ("127.0.0.1:50051", "127.0.0.2:50051", false),
        ("127.0.0.1:50051", "[::ffff:127.0.0.1]:50051", true),
        ("127.0.0.1:50051", "[64:ff9b::7f00:1]:50051", true),
        ("[::ffff:127.0.0.1]:50051", "127.0.0.1:50051", true),
        ("127.0.0.1:50051", "[::1]:50051", false),
        ("[::1]:50051", "[::1]:50051", true),
        ("10.0.0.7:50051", "10.0.0.7:50051", true),
        ("10.0.0.7:50051", "10.0.0.8:50051", false),
        // Bound to all addresses: reached by each of them.
        ("0.0.0.0:50051", "127.0.0.1:50051", true),
        ("0.0.0.0:50051", "127.9.9.9:50051", true),
        ("[::]:50051", "127.0.0.1:50051", true),
        ("[::]:50051", "[::1]:50051", true),
        ("[::]:50051", "[::1]:50052", false),
        ("0.0.0.0:50051", "8.8.8.8:50051", false),
        ("[::]:50051", "[2606:4700::1]:50051", false),
    ];
    for (bound, to, refused) in cases {
        let judged = own(&["192.168.255.255:1", bound]).check("name", to.parse().unwrap());
        match judged {
            Ok(()) => assert!(!refused, "{bound} {to}"),
            Err(why) => assert!(refused && why.contains("this server's own listener"), "{bound} {to}: {why}"),
        }
    }
    if let Some(ip) = outward().filter(|ip| everything().check("x", SocketAddr::new(*ip, 1)).is_ok()) {
        let to = SocketAddr::new(ip, 50051);
        assert!(own(&["0.0.0.0:50051"]).check("name", to).is_err(), "{to}");
        assert!(own(&["0.0.0.0:50052"]).check("name", to).is_ok(), "{to}");
    }
    let literal = HostPort { host: "localhost".to_owned(), port: 443 };
    assert!(own(&["0.0.0.0:443"]).check_literal(&literal).unwrap_err().contains("own listener"));
}

/// Addresses near the edges of ranges, as random ones are nearly always public.
fn near() -> impl Strategy<Value = Ipv4Addr> {
    let edges = V4.map(|(net, _)| net).map(|net| [net.network().to_bits(), net.broadcast().to_bits()]);
    let edges: Vec<u32> = edges.concat();
    (prop::sample::select(edges), -2_i32..=2).prop_map(|(edge, by)| edge.wrapping_add_signed(by).into())
}

proptest! {
    /// The standard library's own judgement is another's: what it finds odd, no mode lets through by itself.
    #[test]
    fn what_the_library_finds_odd_is_not_public(ip in prop_oneof![any::<u32>().prop_map(Ipv4Addr::from), near()]) {
        let found = verdict(ip.into());
        let never = ip.is_unspecified() || ip.is_link_local() || ip.is_multicast() || ip.is_broadcast() || ip.is_documentation();
        prop_assert!(!never || found == Never, "{ip}: {found:?}");
        prop_assert!(!ip.is_private() || found == Cluster, "{ip}: {found:?}");
        prop_assert!(!ip.is_loopback() || found == Listed, "{ip}: {found:?}");
    }

    #[test]
    fn no_v6_is_public_but_global_unicast(bits: u128) {
        let ip = Ipv6Addr::from(bits);
        let found = verdict(ip.into());
        let global = ip.segments()[0] & 0xe000 == 0x2000 || ip.to_ipv4().is_some() || bits >> 96 == 0x64_ff9b;
        prop_assert!(global || found != Public, "{ip}: {found:?}");
        let never = ip.is_unspecified() || ip.is_multicast() || ip.is_unicast_link_local();
        prop_assert!(!never || found == Never, "{ip}: {found:?}");
        prop_assert!(!ip.is_unique_local() || matches!(found, Cluster | Never), "{ip}: {found:?}");
    }

    /// The one list of own listeners beats every list of the operator's.
    #[test]
    fn an_own_listener_is_own_in_every_form(bits: u32, port: u16) {
        let v4 = Ipv4Addr::from_bits(bits);
        let policy = everything().without(&[SocketAddr::new(v4.into(), port)]);
        for ip in [IpAddr::from(v4), v4.to_ipv6_mapped().into()] {
            prop_assert!(policy.check("name", SocketAddr::new(ip, port)).is_err() || v4.is_unspecified());
        }
    }

    #[test]
    fn embedded_classifies_like_the_v4(bits: u32) {
        let v4 = Ipv4Addr::from_bits(bits);
        let plain = verdict(v4.into());
        let [h, l] = [(bits >> 16) as u16, bits as u16];
        prop_assert_eq!(verdict(v4.to_ipv6_mapped().into()), plain);
        prop_assert_eq!(verdict(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, h, l).into()), plain);
        prop_assert_eq!(verdict(Ipv6Addr::new(0x2002, h, l, 0, 0, 0, 0, 1).into()), plain);
        prop_assert_eq!(verdict(Ipv6Addr::new(0x2001, 0, h, l, 0, 0, !h, !l).into()), plain);
    }

    #[test]
    fn parse_never_panics(text in "[\\[\\]:./*a-f0-9%x -]{0,40}") {
        let _any = Policy::parse(Mode::Strict, &[text]);
    }
}
