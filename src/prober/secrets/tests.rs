use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
};

use tempfile::TempDir;

use super::*;

fn name(text: &str) -> SecretName {
    SecretName::parse(text).unwrap()
}

fn to(host: &str, port: u16, encrypted: bool) -> Audience {
    Audience { hosts: vec![host.to_owned()], port, encrypted }
}

fn put(dir: &TempDir, file: &str, content: impl AsRef<[u8]>) {
    fs::write(dir.path().join(file), content).unwrap();
}

fn secrets(dir: &TempDir) -> Secrets {
    Secrets::new(Some(dir.path().to_owned()))
}

#[tokio::test]
async fn a_secret_goes_only_where_its_rule_says() {
    let dir = TempDir::new().unwrap();
    put(&dir, "token", "canary\n");
    let rule = "# who may have it\n\n api.example \n*.tools.internal\nport.example:8443\n10.0.0.7\n172.16.0.0/12\n\
                [::1]:80\nhttps://tls.example\nhttp://plain.example:8080\nnot an entry\nhttp://\n*\n0.0.0.0/0:1\n";
    put(&dir, "token.hosts", rule);
    let cases = [
        ("api.example", 443, true, true),
        ("API.Example.", 1, true, true),
        ("api.example", 443, false, false),
        ("a.api.example", 443, true, false),
        ("api.example.evil", 443, true, false),
        ("a.b.tools.internal", 443, true, true),
        ("tools.internal", 443, true, false),
        ("port.example", 8443, true, true),
        ("port.example", 443, true, false),
        ("10.0.0.7", 443, true, true),
        ("10.0.0.8", 443, true, false),
        ("172.17.0.1", 443, true, true),
        ("::1", 80, true, true),
        ("::1", 81, true, false),
        ("tls.example", 443, true, true),
        ("tls.example", 80, false, false),
        ("plain.example", 8080, false, true),
        ("plain.example", 8080, true, true),
        ("plain.example", 8081, false, false),
        ("other.example", 1, true, false),
        ("8.8.8.8", 1, true, true),
        ("", 443, true, false),
    ];
    for (host, port, encrypted, may) in cases {
        let got = secrets(&dir).get(&name("token"), Some(&to(host, port, encrypted))).await;
        assert_eq!(got.is_ok(), may, "{host}:{port} {encrypted}: {got:?}");
        match got {
            Ok(secret) => assert_eq!(secret.expose(), "canary"),
            Err(why) => assert!(!why.contains("canary") && why.contains(SECRETS_SETTING), "{why}"),
        }
    }
    // The name that the certificate is verified for counts as the host does.
    let mut both = to("api.example", 443, true);
    both.hosts.push("evil.example".to_owned());
    assert!(secrets(&dir).get(&name("token"), Some(&both)).await.is_err());
}

#[tokio::test]
async fn one_that_is_not_there_looks_like_one_that_is_not_for_you() {
    let dir = TempDir::new().unwrap();
    put(&dir, "other", "canary");
    put(&dir, "ruled", "canary");
    put(&dir, "ruled.hosts", "else.example");
    let mut told = std::collections::BTreeSet::new();
    for secret in ["absent", "other", "ruled"] {
        let why = secrets(&dir).get(&name(secret), Some(&to("api.example", 443, true))).await.unwrap_err();
        told.insert(why.replace(secret, "NAME"));
    }
    assert_eq!(told.len(), 1, "{told:?}");
    let why = Secrets::default().get(&name("other"), None).await.unwrap_err();
    assert_eq!(why, "secret 'other' can't be used: TOOLPULSE_SECRETS_DIR is not set");
}

#[tokio::test]
async fn what_is_no_text_file_is_refused_without_a_word_of_it() {
    let dir = TempDir::new().unwrap();
    put(&dir, "large", "x".repeat(MAX_FILE + 1));
    put(&dir, "bytes", b"canary\xff");
    put(&dir, "empty", "\n");
    fs::create_dir(dir.path().join("dir")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        dir.path().join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    symlink("/nowhere", dir.path().join("dangling")).unwrap();
    let cases = [
        ("large", "is larger than 64 KiB"),
        ("bytes", "is not a text"),
        ("empty", "is empty"),
        ("dir", "is not a file"),
        ("pipe", "is not a file"),
        ("dangling", "is not in TOOLPULSE_SECRETS_DIR"),
    ];
    for (file, what) in cases {
        let why = secrets(&dir).get(&name(file), None).await.unwrap_err();
        assert_eq!(why, format!("secret '{file}' {what}"));
    }
    put(&dir, "largest", "x".repeat(MAX_FILE));
    assert!(secrets(&dir).get(&name("largest"), None).await.is_ok());
    put(&dir, "locked", "canary");
    fs::set_permissions(dir.path().join("locked"), fs::Permissions::from_mode(0o0)).unwrap();
    // Root reads it all the same.
    if let Err(why) = secrets(&dir).get(&name("locked"), None).await {
        assert_eq!(why, "secret 'locked' can't be read: permission denied");
    }
}

/// As the kubelet does it: `token` points into `..data`, which points to a directory of one version.
#[tokio::test]
async fn a_swapped_link_counts_at_once() {
    let dir = TempDir::new().unwrap();
    let version = |number: &str, content: &str| {
        let versioned = dir.path().join(format!("..{number}"));
        fs::create_dir(&versioned).unwrap();
        fs::write(versioned.join("token"), content).unwrap();
        symlink(format!("..{number}"), dir.path().join("..data_tmp")).unwrap();
        fs::rename(dir.path().join("..data_tmp"), dir.path().join("..data")).unwrap();
    };
    symlink("..data/token", dir.path().join("token")).unwrap();
    let secrets = secrets(&dir);
    version("1", "first\r\n");
    assert_eq!(secrets.get(&name("token"), None).await.unwrap().expose(), "first");
    version("2", "second");
    assert_eq!(secrets.get(&name("token"), None).await.unwrap().expose(), "second");
}
