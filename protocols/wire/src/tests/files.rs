//! Certificates and keys as files.

use super::*;

#[test]
fn an_expired_certificate_is_named_with_its_date() {
    let folder = authority();
    let past = SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000);
    let then = Validity {
        from: past,
        until: past + Duration::from_secs(60),
    };
    issue(folder.path(), "bob", then, Existing::Keep).unwrap();
    let error = Credentials::from_folder(folder.path(), "bob", SystemTime::now()).unwrap_err();
    assert!(
        matches!(&error, WireError::Expired { since, .. } if since == "2020-09-13 12:27 UTC"),
        "{error}"
    );
}

#[test]
fn clients_names_are_plain() {
    for good in ["a", "0", "edge-7", &"x".repeat(63)] {
        assert!(is_client_name(good), "{good}");
    }
    let long = "x".repeat(64);
    for bad in [
        "",
        "-a",
        "A",
        "a.b",
        "../a",
        "ä",
        "a b",
        "authority",
        "coordinator",
        &long,
    ] {
        assert!(!is_client_name(bad), "{bad}");
        let error = issue(Path::new("/"), bad, year(), Existing::Keep).unwrap_err();
        assert_eq!(error.code(), "E-WIRE-NAME");
    }
}

#[test]
fn nothing_is_overwritten_unasked() {
    let folder = authority();
    let before = fs::read(folder.path().join("ada.pem")).unwrap();
    for outcome in [
        issue(folder.path(), "ada", year(), Existing::Keep),
        new_authority(folder.path(), &[], year(), Existing::Keep),
    ] {
        assert!(matches!(outcome, Err(WireError::Exists { .. })));
    }
    assert_eq!(fs::read(folder.path().join("ada.pem")).unwrap(), before);
    issue(folder.path(), "ada", year(), Existing::Replace).unwrap();
    assert_ne!(fs::read(folder.path().join("ada.pem")).unwrap(), before);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 6, "no file left aside");
}

#[cfg(unix)]
#[test]
fn private_keys_are_readable_by_their_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let folder = authority();
    for entry in fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        let is_key = path.extension().unwrap() == "key";
        assert_eq!(mode & 0o077 == 0, is_key, "{}: {mode:o}", path.display());
    }
}

#[test]
fn unusable_files_are_named() {
    let folder = authority();
    let load = |certificate: &str, key: &str| {
        let path = |name: &str| folder.path().join(name);
        let now = SystemTime::now();
        Credentials::load(&path(certificate), &path(key), &path("authority.pem"), now).unwrap_err()
    };
    let named = |error: &WireError, name: &str| {
        assert!(error.to_string().contains(name), "{error}");
    };
    let error = load("eve.pem", "ada.key");
    assert_eq!(error.code(), "E-WIRE-FILE");
    named(&error, "eve.pem");
    let error = load("ada.key", "ada.key");
    assert_eq!(error.code(), "E-WIRE-PEM");
    named(&error, "ada.key");
    let error = load("ada.pem", "ada.pem");
    assert_eq!(error.code(), "E-WIRE-PEM");
    let error = load("ada.pem", "coordinator.key");
    assert!(matches!(error, WireError::KeyMismatch { .. }));
    named(&error, "coordinator.key");
    let text = fs::read_to_string(folder.path().join("ada.pem")).unwrap();
    fs::write(folder.path().join("ada.pem"), &text[..text.len() / 2]).unwrap();
    let error = load("ada.pem", "ada.key");
    assert_eq!(error.code(), "E-WIRE-PEM");
    let then = Validity {
        from: SystemTime::now() + Duration::from_secs(86_400),
        until: SystemTime::now() + Duration::from_secs(2 * 86_400),
    };
    issue(folder.path(), "early", then, Existing::Keep).unwrap();
    let error = load("early.pem", "early.key");
    assert!(matches!(error, WireError::NotYetValid { .. }));
}
