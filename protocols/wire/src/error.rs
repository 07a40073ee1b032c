//! What can go wrong on the wire, said so that a person can act on it.

use std::{io, path::PathBuf, time::Duration};

use quinn::{ConnectionError, ReadError, TransportErrorCode, WriteError};
use rustls::AlertDescription;

use super::{
    blob::BlobReference,
    codec::CodecError,
    quic_settings::PROTOCOL,
    streams::{RESET_ABANDONED, RESET_STEPS_REFUSED},
};

/// An error of the wire or of its certificates. [`code`](WireError::code) is stable and has its
/// line in the book; the text says what was wrong, where, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // The texts say what the fields are.
pub enum WireError {
    #[error("cannot {doing} {}: {source}", path.display())]
    File {
        doing: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error(
        "{} is missing: `selvedge certs new` makes the certificates of a coordinator, `selvedge certs issue` those of \
         a client; if they are in another folder, name it with --certs",
        path.display()
    )]
    NoCredentials { path: PathBuf },
    #[error("{} is the certificate of \"{holder}\": give that name, or another certificate", path.display())]
    OtherName { path: PathBuf, holder: String },
    #[error("{} already exists; it is replaced only with --force", path.display())]
    Exists { path: PathBuf },
    #[error("{} holds no {expected}: {detail}", path.display())]
    NotPem {
        path: PathBuf,
        expected: &'static str,
        detail: String,
    },
    #[error(
        "the private key {} does not belong to the certificate {}; issue the two together",
        key.display(), certificate.display()
    )]
    KeyMismatch { certificate: PathBuf, key: PathBuf },
    #[error("the certificate {} expired on {since}; issue a new one", path.display())]
    Expired { path: PathBuf, since: String },
    #[error(
        "the certificate {} is valid only from {from} on; is this machine's clock right?",
        path.display()
    )]
    NotYetValid { path: PathBuf, from: String },
    #[error(
        "\"{name}\" cannot be a client's name: use 1 to 63 lower-case letters, digits and hyphens, \
         not a hyphen first, and neither \"authority\" nor \"coordinator\""
    )]
    ClientName { name: String },
    #[error("cannot make {what}: {detail}")]
    Issuing { what: String, detail: String },

    #[error("cannot use the address {address}: {detail}")]
    Address { address: String, detail: String },
    #[error(
        "nobody answers at {address} within {} s; is the coordinator running, and does a firewall \
         let UDP through?", after.as_secs_f64()
    )]
    Unreachable { address: String, after: Duration },
    #[error(
        "{peer} speaks another version of the protocol (here it is \"{PROTOCOL}\"); \
         install the same version of Selvedge on both sides"
    )]
    Version { peer: String },
    #[error("the certificate of {peer} is refused: {fault} ({detail})")]
    PeerCertificate {
        peer: String,
        fault: CertificateFault,
        detail: String,
    },
    #[error("{peer} refuses our certificate: {fault} ({detail})")]
    OwnCertificate {
        peer: String,
        fault: CertificateFault,
        detail: String,
    },
    #[error("the link to {peer} is lost: {detail}")]
    Lost { peer: String, detail: String },
    #[error("{peer} ended the link: {reason}")]
    ClosedByPeer { peer: String, reason: String },
    #[error("the link to {peer} was ended on this side")]
    ClosedHere { peer: String },
    #[error("{peer} breaks the protocol: {detail}")]
    Protocol { peer: String, detail: String },
    #[error("{peer} made no progress for {} s while {doing}", after.as_secs_f64())]
    Stalled {
        peer: String,
        doing: &'static str,
        after: Duration,
    },

    #[error("{peer} announces a frame of {bytes} bytes, the limit is {limit}")]
    FrameTooLarge { peer: String, bytes: usize, limit: usize },
    #[error("a message from {peer} cannot be read: {source}")]
    Malformed { peer: String, source: CodecError },
    #[error("a message to {peer} cannot be sent: {source}")]
    Unsendable { peer: String, source: CodecError },

    #[error("{peer} announces a payload of {bytes} bytes, the limit is {limit}")]
    PayloadTooLarge { peer: String, bytes: u64, limit: u64 },
    #[error("{peer} takes no steps on this link")]
    StepsRefused { peer: String },

    #[error("{blob} exceeds the limit of {limit} bytes")]
    BlobTooLarge { blob: BlobReference, limit: u64 },
    #[error("{peer} sent too few bytes: {got} of {blob}")]
    BlobTooShort {
        peer: String,
        blob: BlobReference,
        got: u64,
    },
    #[error("{peer} sent too many bytes: more than {blob} has")]
    BlobTooLong { peer: String, blob: BlobReference },
    #[error("{peer} sent other bytes than promised: {blob} was expected, blake3 {got} came")]
    BlobHash {
        peer: String,
        blob: BlobReference,
        got: String,
    },
    #[error("{peer} does not hold {blob} (any more)")]
    BlobNotHeld { peer: String, blob: BlobReference },
    #[error("{peer} gave up sending {blob}")]
    BlobAbandoned { peer: String, blob: BlobReference },
    #[error("no room for {blob}: {held} of {capacity} bytes are taken by blobs being offered")]
    StoreFull {
        blob: BlobReference,
        held: u64,
        capacity: u64,
    },
}

/// What is wrong with a certificate that one side refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateFault {
    /// No certificate was shown.
    #[error("there is none; every client needs one, issued by the coordinator's authority")]
    Missing,
    /// Signed by an authority that this federation does not trust.
    #[error("it was issued by another authority; use one issued by this federation's")]
    OtherAuthority,
    /// Expired, or not valid yet.
    #[error("it has expired, or is not valid yet; issue a new one, or set the clock")]
    NotValidNow,
    /// Made out to another host, or undecodable.
    #[error("it is not made out to the host name that was dialled, or is damaged")]
    WrongHost,
    /// A client's certificate used as a coordinator's, or the reverse.
    #[error("it was issued for the other role: clients and coordinators each have their own kind")]
    WrongRole,
    /// Anything else.
    #[error("it is not acceptable")]
    Unacceptable,
}

impl WireError {
    /// The stable short code of this kind of error.
    pub fn code(&self) -> &'static str {
        use CertificateFault as Fault;
        match self {
            Self::File { .. } => "E-WIRE-FILE",
            Self::NoCredentials { .. } => "E-WIRE-NO-CERT",
            Self::Exists { .. } => "E-WIRE-EXISTS",
            Self::NotPem { .. } => "E-WIRE-PEM",
            Self::KeyMismatch { .. } => "E-WIRE-KEY",
            Self::Expired { .. } | Self::NotYetValid { .. } => "E-WIRE-CERT-DATE",
            Self::ClientName { .. } | Self::OtherName { .. } => "E-WIRE-NAME",
            Self::Issuing { .. } => "E-WIRE-ISSUE",
            Self::Address { .. } => "E-WIRE-ADDRESS",
            Self::Unreachable { .. } => "E-WIRE-UNREACHABLE",
            Self::Version { .. } => "E-WIRE-VERSION",
            Self::PeerCertificate { fault, .. } | Self::OwnCertificate { fault, .. } => match fault {
                Fault::Missing => "E-WIRE-CERT-MISSING",
                Fault::OtherAuthority => "E-WIRE-CERT-AUTHORITY",
                Fault::NotValidNow => "E-WIRE-CERT-DATE",
                Fault::WrongHost => "E-WIRE-CERT-HOST",
                Fault::WrongRole => "E-WIRE-CERT-ROLE",
                Fault::Unacceptable => "E-WIRE-CERT",
            },
            Self::Lost { .. } => "E-WIRE-LOST",
            Self::ClosedByPeer { .. } | Self::ClosedHere { .. } => "E-WIRE-CLOSED",
            Self::Protocol { .. } => "E-WIRE-PROTOCOL",
            Self::Stalled { .. } => "E-WIRE-STALLED",
            Self::FrameTooLarge { .. } => "E-WIRE-FRAME-SIZE",
            Self::Malformed { .. } => "E-WIRE-MALFORMED",
            Self::Unsendable { .. } => "E-WIRE-UNSENDABLE",
            Self::PayloadTooLarge { .. } => "E-WIRE-PAYLOAD-SIZE",
            Self::StepsRefused { .. } => "E-WIRE-STEPS-REFUSED",
            Self::BlobTooLarge { .. } => "E-WIRE-BLOB-SIZE",
            Self::BlobTooShort { .. } => "E-WIRE-BLOB-SHORT",
            Self::BlobTooLong { .. } => "E-WIRE-BLOB-LONG",
            Self::BlobHash { .. } => "E-WIRE-BLOB-HASH",
            Self::BlobNotHeld { .. } => "E-WIRE-BLOB-GONE",
            Self::BlobAbandoned { .. } => "E-WIRE-BLOB-ABANDONED",
            Self::StoreFull { .. } => "E-WIRE-STORE-FULL",
        }
    }

    /// Whether trying again later, on a new link, can help without anybody changing anything.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. }
                | Self::Lost { .. }
                | Self::ClosedByPeer { .. }
                | Self::Stalled { .. }
                | Self::BlobAbandoned { .. }
        )
    }
}

/// Says in a person's words what QUIC reports.
pub(super) trait Explain {
    /// The error, with the peer's name.
    fn explain(self, peer: &str) -> WireError;
}

impl Explain for WireError {
    fn explain(self, _peer: &str) -> WireError {
        self
    }
}

impl Explain for ConnectionError {
    fn explain(self, peer: &str) -> WireError {
        let peer = peer.to_owned();
        let detail = match self {
            Self::TransportError(error) => {
                return explain_code(peer, error.code, error.reason, false);
            }
            Self::ConnectionClosed(close) => {
                return explain_code(peer, close.error_code, printable(&close.reason), true);
            }
            Self::ApplicationClosed(close) => {
                let reason = match close.reason.is_empty() {
                    true => "it gave no reason".to_owned(),
                    false => printable(&close.reason),
                };
                return WireError::ClosedByPeer { peer, reason };
            }
            Self::VersionMismatch => return WireError::Version { peer },
            Self::LocallyClosed => return WireError::ClosedHere { peer },
            Self::TimedOut => "nothing was heard from it within the idle limit".to_owned(),
            Self::Reset => "it no longer knows this link; it was probably restarted".to_owned(),
            other => other.to_string(),
        };
        WireError::Lost { peer, detail }
    }
}

impl Explain for ReadError {
    fn explain(self, peer: &str) -> WireError {
        let peer = peer.to_owned();
        match self {
            Self::ConnectionLost(error) => error.explain(&peer),
            Self::Reset(RESET_STEPS_REFUSED) => WireError::StepsRefused { peer },
            Self::Reset(RESET_ABANDONED) => WireError::ClosedByPeer {
                peer,
                reason: "it gave up its stream of messages".to_owned(),
            },
            other => WireError::Protocol {
                peer,
                detail: other.to_string(),
            },
        }
    }
}

impl Explain for WriteError {
    fn explain(self, peer: &str) -> WireError {
        match self {
            Self::ConnectionLost(error) => error.explain(peer),
            other => WireError::Protocol {
                peer: peer.to_owned(),
                detail: other.to_string(),
            },
        }
    }
}

/// `remote`: the peer found the fault (so it is in what we sent), not we.
fn explain_code(peer: String, code: TransportErrorCode, detail: String, remote: bool) -> WireError {
    // RFC 9001, section 4.8: TLS alert `a` travels as QUIC error 0x100 + a.
    let Ok(alert) = u8::try_from(u64::from(code).wrapping_sub(0x100)) else {
        let detail = format!("{code}: {detail}");
        return WireError::Lost { peer, detail };
    };
    let fault = match AlertDescription::from(alert) {
        AlertDescription::NoApplicationProtocol => return WireError::Version { peer },
        AlertDescription::CertificateRequired => CertificateFault::Missing,
        // Two authorities of one name differ only in the signature, hence the second.
        AlertDescription::UnknownCA | AlertDescription::DecryptError => CertificateFault::OtherAuthority,
        AlertDescription::CertificateExpired => CertificateFault::NotValidNow,
        AlertDescription::BadCertificate => CertificateFault::WrongHost,
        AlertDescription::UnsupportedCertificate => CertificateFault::WrongRole,
        AlertDescription::CertificateUnknown
        | AlertDescription::CertificateRevoked
        | AlertDescription::AccessDenied => CertificateFault::Unacceptable,
        other => {
            return WireError::Protocol {
                peer,
                detail: format!("TLS failed with {other:?}: {detail}"),
            };
        }
    };
    match remote {
        true => WireError::OwnCertificate { peer, fault, detail },
        false => WireError::PeerCertificate { peer, fault, detail },
    }
}

/// A peer's words, made safe to print: no control characters, not endless.
fn printable(words: &[u8]) -> String {
    String::from_utf8_lossy(words)
        .chars()
        .take(300)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}
