//! Who is who: a federation's authority, the certificates it issues, and reading them back.
//!
//! An authority is a folder: `authority.pem` and `.key`, `coordinator.pem` and `.key`, and a
//! `NAME.pem` and `NAME.key` for each client. A client device needs its own pair and
//! `authority.pem`. A client's certificate only proves a client and a coordinator's only a
//! coordinator (extended key usage), so no client can play the coordinator towards the others.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    sign::CertifiedKey,
};
use selvedge_words::ClientName;
use time::OffsetDateTime;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::WireError;

/// File and certificate name of the authority.
pub const AUTHORITY: &str = "authority";
/// File and certificate name of the coordinator.
pub const COORDINATOR: &str = "coordinator";

/// From when to when a certificate is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// First moment.
    pub from: SystemTime,
    /// Last moment.
    pub until: SystemTime,
}

impl Validity {
    /// So many days from now, and an hour back for clocks that lag.
    pub fn days(now: SystemTime, days: u16) -> Self {
        Self {
            from: now - Duration::from_secs(3600),
            until: now + Duration::from_secs(86_400 * u64::from(days)),
        }
    }
}

/// What to do about files that exist already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// Refuse with [`WireError::Exists`].
    Keep,
    /// Replace them. A replaced authority makes all certificates issued before worthless.
    Replace,
}

/// Makes a new authority in `folder` (created if need be) and a certificate for its coordinator.
///
/// `hosts` are the host names and IP addresses under which clients dial the coordinator; with none
/// given, `localhost`, `127.0.0.1` and `::1`.
///
/// # Errors
/// [`WireError::Exists`], [`WireError::File`], [`WireError::Issuing`] (a host that is no name).
pub fn new_authority(folder: &Path, hosts: &[String], validity: Validity, existing: Existing) -> Result<(), WireError> {
    let failed = |error| issuing("the authority's certificate", error);
    if let Some(host) = hosts.iter().find(|host| ServerName::try_from(host.as_str()).is_err()) {
        return Err(issuing(
            &format!("a certificate for {host:?}"),
            "it is no host name and no IP address",
        ));
    }
    fs::create_dir_all(folder).map_err(|error| file("create", folder, error))?;
    refuse_existing(folder, &[AUTHORITY, COORDINATOR], existing)?;

    let key = KeyPair::generate().map_err(failed)?;
    // Each authority has a name of its own, so that a stranger's is recognised as unknown.
    let mark = blake3::hash(key.public_key_raw()).to_hex();
    let mut params = params(&format!("selvedge authority {}", &mark[..12]), validity)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let certificate = params.self_signed(&key).map_err(failed)?;
    write_pair(folder, AUTHORITY, &certificate.pem(), &key, existing)?;

    let defaults = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let hosts = if hosts.is_empty() { &defaults } else { hosts };
    let names = CertificateParams::new(hosts)
        .map_err(|error| issuing(&format!("a certificate for {}", hosts.join(", ")), error))?
        .subject_alt_names;
    let mut leaf = self::params(COORDINATOR, validity)?;
    leaf.subject_alt_names = names;
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    sign(folder, leaf, COORDINATOR, &Issuer::new(params, key), existing)
}

/// Issues a client's certificate: `NAME.pem` and `NAME.key` in the authority's folder.
///
/// # Errors
/// [`WireError::ClientName`], [`WireError::Exists`], [`WireError::File`] and
/// [`WireError::NotPem`] for the authority's own files.
pub fn issue(folder: &Path, name: &str, validity: Validity, existing: Existing) -> Result<(), WireError> {
    if !is_client_name(name) {
        return Err(WireError::ClientName { name: name.to_owned() });
    }
    refuse_existing(folder, &[name], existing)?;
    let (certificate_path, key_path) = paths(folder, AUTHORITY);
    let key = KeyPair::from_pem(&read(&key_path)?).map_err(|error| not_pem(&key_path, "private key", error))?;
    let not_authority = |error: String| not_pem(&certificate_path, "certificate of an authority", error);
    let pem = read(&certificate_path)?;
    let certificate =
        CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|error| not_authority(error.to_string()))?;
    let is_its_key = {
        let parsed = parse(&certificate).map_err(not_authority)?;
        *parsed.public_key().subject_public_key.data == *key.public_key_raw()
    };
    if !is_its_key {
        return Err(WireError::KeyMismatch {
            certificate: certificate_path,
            key: key_path,
        });
    }
    let issuer = Issuer::from_ca_cert_pem(&pem, key).map_err(|error| not_authority(error.to_string()))?;
    let mut leaf = params(name, validity)?;
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    sign(folder, leaf, name, &issuer, existing)
}

/// Whether `name` can be a client's: a [`ClientName`], and not one of the two reserved.
pub fn is_client_name(name: &str) -> bool {
    ClientName::new(name).is_ok() && name != AUTHORITY && name != COORDINATOR
}

/// What a peer's verified certificate says about it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerIdentity {
    /// The name that the authority gave it; a client keeps it when its certificate is renewed.
    pub name: String,
    /// blake3 of the certificate (DER); changes when it is renewed.
    pub fingerprint: [u8; 32],
}

impl PeerIdentity {
    pub(super) fn of(certificate: &CertificateDer<'_>) -> Result<Self, String> {
        let parsed = parse(certificate)?;
        let mut names = parsed.subject().iter_common_name();
        match (names.next().map(|name| name.as_str()), names.next()) {
            (Some(Ok(name)), None) if is_client_name(name) || name == COORDINATOR => Ok(Self {
                name: name.to_owned(),
                fingerprint: *blake3::hash(certificate).as_bytes(),
            }),
            _ => Err("it does not carry one valid name".to_owned()),
        }
    }
}

impl fmt::Display for PeerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// One side's certificate and key, and the authority whose certificates it trusts.
#[derive(Clone)]
pub struct Credentials {
    pub(super) certified: Arc<CertifiedKey>,
    pub(super) roots: Arc<RootCertStore>,
    identity: PeerIdentity,
}

impl Credentials {
    /// Loads `NAME.pem`, `NAME.key` and `authority.pem` from a folder.
    ///
    /// # Errors
    /// [`WireError::NoCredentials`] when one of them is not there, [`WireError::OtherName`] when the certificate is
    /// somebody else's; otherwise as [`load`](Self::load).
    pub fn from_folder(folder: &Path, name: &str, now: SystemTime) -> Result<Self, WireError> {
        let (certificate, key) = paths(folder, name);
        let authority = paths(folder, AUTHORITY).0;
        if let Some(path) = [&certificate, &key, &authority].into_iter().find(|path| !path.exists()) {
            return Err(WireError::NoCredentials { path: path.clone() });
        }
        let credentials = Self::load(&certificate, &key, &authority, now)?;
        match credentials.identity.name == name {
            true => Ok(credentials),
            false => Err(WireError::OtherName {
                path: certificate,
                holder: credentials.identity.name,
            }),
        }
    }

    /// Loads a certificate, its key and the authority's certificate.
    ///
    /// # Errors
    /// [`WireError::File`], [`WireError::NotPem`], [`WireError::KeyMismatch`],
    /// [`WireError::Expired`], [`WireError::NotYetValid`].
    pub fn load(certificate: &Path, key: &Path, authority: &Path, now: SystemTime) -> Result<Self, WireError> {
        let certificate_der = load_certificate(certificate, now)?;
        let authority_der = load_certificate(authority, now)?;
        let key_der =
            PrivateKeyDer::from_pem_slice(read(key)?.as_bytes()).map_err(|error| not_pem(key, "private key", error))?;
        let identity = PeerIdentity::of(&certificate_der)
            .map_err(|detail| not_pem(certificate, "certificate of a member", detail))?;
        let provider = rustls::crypto::ring::default_provider();
        let certified =
            CertifiedKey::from_der(vec![certificate_der], key_der, &provider).map_err(|error| match error {
                rustls::Error::InconsistentKeys(_) => WireError::KeyMismatch {
                    certificate: certificate.to_owned(),
                    key: key.to_owned(),
                },
                other => not_pem(key, "usable private key", other),
            })?;
        let mut roots = RootCertStore::empty();
        roots
            .add(authority_der)
            .map_err(|error| not_pem(authority, "certificate of an authority", error))?;
        Ok(Self {
            certified: Arc::new(certified),
            roots: Arc::new(roots),
            identity,
        })
    }

    /// As whom these present themselves.
    pub fn identity(&self) -> &PeerIdentity {
        &self.identity
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials({})", self.identity)
    }
}

fn load_certificate(path: &Path, now: SystemTime) -> Result<CertificateDer<'static>, WireError> {
    let certificate =
        CertificateDer::from_pem_slice(read(path)?.as_bytes()).map_err(|error| not_pem(path, "certificate", error))?;
    let validity = parse(&certificate)
        .map_err(|detail| not_pem(path, "certificate", detail))?
        .validity()
        .clone();
    let now = date(now)?;
    if now > validity.not_after.to_datetime() {
        return Err(WireError::Expired {
            path: path.to_owned(),
            since: readable(validity.not_after.to_datetime()),
        });
    }
    if now < validity.not_before.to_datetime() {
        return Err(WireError::NotYetValid {
            path: path.to_owned(),
            from: readable(validity.not_before.to_datetime()),
        });
    }
    Ok(certificate)
}

fn parse<'a>(certificate: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, String> {
    match X509Certificate::from_der(certificate) {
        Ok((_, parsed)) => Ok(parsed),
        Err(error) => Err(error.to_string()),
    }
}

fn params(name: &str, validity: Validity) -> Result<CertificateParams, WireError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = date(validity.from)?;
    params.not_after = date(validity.until)?;
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

fn sign(
    folder: &Path,
    params: CertificateParams,
    name: &str,
    issuer: &Issuer<'_, KeyPair>,
    existing: Existing,
) -> Result<(), WireError> {
    let failed = |error| issuing(&format!("the certificate of {name}"), error);
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = params.signed_by(&key, issuer).map_err(failed)?;
    write_pair(folder, name, &certificate.pem(), &key, existing)
}

/// Where a member's certificate and private key lie in the authority's folder.
pub fn paths(folder: &Path, name: &str) -> (PathBuf, PathBuf) {
    (folder.join(format!("{name}.pem")), folder.join(format!("{name}.key")))
}

/// Looks before anything is written, so that a refusal leaves no half of a pair behind.
fn refuse_existing(folder: &Path, names: &[&str], existing: Existing) -> Result<(), WireError> {
    for name in names {
        let (certificate, key) = paths(folder, name);
        for path in [certificate, key] {
            if existing == Existing::Keep && path.exists() {
                return Err(WireError::Exists { path });
            }
        }
    }
    Ok(())
}

fn write_pair(
    folder: &Path,
    name: &str,
    certificate: &str,
    key: &KeyPair,
    existing: Existing,
) -> Result<(), WireError> {
    let (certificate_path, key_path) = paths(folder, name);
    write(&key_path, &key.serialize_pem(), 0o600, existing)?;
    write(&certificate_path, certificate, 0o644, existing)
}

/// Writes aside, syncs, renames: the file is there whole or not at all.
fn write(path: &Path, text: &str, mode: u32, existing: Existing) -> Result<(), WireError> {
    let failed = |error| file("write", path, error);
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(mode));
    #[cfg(not(unix))]
    let _ = mode;
    let mut aside = builder.tempfile_in(folder).map_err(failed)?;
    io::Write::write_all(&mut aside, text.as_bytes()).map_err(failed)?;
    aside.as_file().sync_all().map_err(failed)?;
    let persisted = match existing {
        Existing::Keep => aside.persist_noclobber(path),
        Existing::Replace => aside.persist(path),
    };
    match persisted {
        Ok(_) => {}
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(WireError::Exists { path: path.to_owned() });
        }
        Err(error) => return Err(failed(error.error)),
    }
    #[cfg(unix)]
    fs::File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(failed)?;
    Ok(())
}

fn read(path: &Path) -> Result<String, WireError> {
    fs::read_to_string(path).map_err(|error| file("read", path, error))
}

/// Certificates count in whole seconds.
fn date(moment: SystemTime) -> Result<OffsetDateTime, WireError> {
    let seconds = match moment.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
        Err(before) => -i64::try_from(before.duration().as_secs()).unwrap_or(i64::MAX),
    };
    OffsetDateTime::from_unix_timestamp(seconds).map_err(|error| issuing("such a date", error))
}

fn readable(date: OffsetDateTime) -> String {
    format!("{} {:02}:{:02} UTC", date.date(), date.hour(), date.minute())
}

fn file(doing: &'static str, path: &Path, source: io::Error) -> WireError {
    WireError::File {
        doing,
        path: path.to_owned(),
        source,
    }
}

fn not_pem(path: &Path, expected: &'static str, detail: impl fmt::Display) -> WireError {
    WireError::NotPem {
        path: path.to_owned(),
        expected,
        detail: detail.to_string(),
    }
}

fn issuing(what: &str, detail: impl fmt::Display) -> WireError {
    WireError::Issuing {
        what: what.to_owned(),
        detail: detail.to_string(),
    }
}
