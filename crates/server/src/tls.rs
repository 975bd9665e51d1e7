//! The certificate of a server that speaks TLS, which takes a new one over while it runs.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, ServerConfig};

/// Bytes of a file with a certificate and those above it.
const LONGEST: u64 = 1 << 20;

/// Between two looks at the files. A change is taken when it has rested for one of them: two files
/// do not change in one moment.
const LOOK: Duration = Duration::from_secs(1);

/// The beginning of keys that need a password.
const ENCRYPTED: &[u8] = b"-----BEGIN ENCRYPTED PRIVATE KEY-----";
/// Such a key in its older form.
const ENCRYPTED_TOO: &[u8] = b"Proc-Type: 4,ENCRYPTED";

/// A certificate and its key that no server can use.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{file}: {reason}")]
    Read {
        /// The file.
        file: String,
        /// The system's reason.
        reason: io::Error,
    },
    /// A file is longer than any of its kind.
    #[error("{0}: has more than {LONGEST} bytes, which no certificate and no key has")]
    TooLong(String),
    /// A file has the form of PEM, but is damaged.
    #[error("{file}: is no PEM: {reason}")]
    Pem {
        /// The file.
        file: String,
        /// The fault.
        reason: String,
    },
    /// A file has no certificate.
    #[error(
        "{0}: holds no certificate: it needs a section `BEGIN CERTIFICATE`, and those of the authorities between behind it"
    )]
    NoCertificate(String),
    /// A file has no key.
    #[error("{0}: holds no private key: it needs a section `BEGIN PRIVATE KEY`")]
    NoKey(String),
    /// A key needs a password.
    #[error("{0}: the key needs a password: write it without one by `openssl pkey -in FILE`")]
    Encrypted(String),
    /// The key is another one's.
    #[error(
        "{key}: the key is not that of the first certificate in {certificate}: give the key with which it was asked for, and \
         the server's own certificate before those of authorities"
    )]
    Mismatch {
        /// The file of the certificate.
        certificate: String,
        /// The file of the key.
        key: String,
    },
    /// A key or a certificate of a kind that is not known here.
    #[error("{certificate}, {key}: cannot be used: {reason}")]
    Unusable {
        /// The file of the certificate.
        certificate: String,
        /// The file of the key.
        key: String,
        /// Why.
        reason: String,
    },
}

/// A certificate with its key, and the files from which both are read.
#[derive(Clone)]
pub struct Tls {
    files: Files,
    current: Arc<Current>,
    config: Arc<ServerConfig>,
}

/// The files of a certificate.
#[derive(Clone)]
struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

/// Facts of a file that change with it.
type Stamp = Option<(u64, u64, u64, i64, i64)>;

/// The certificate that the next connection is shown.
struct Current(RwLock<Arc<CertifiedKey>>);

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tls({})", self.files.certificate.display())
    }
}

impl fmt::Debug for Current {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Current(…)")
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl Tls {
    /// Reads a certificate, with those of the authorities between behind it, and its key. Both
    /// files are PEM, and may be one.
    ///
    /// # Errors
    /// A file that cannot be read or holds neither, and a key of another certificate.
    pub fn read(certificate: &Path, key: &Path) -> Result<Tls, TlsError> {
        let files = Files { certificate: certificate.to_owned(), key: key.to_owned() };
        let provider = Arc::new(ring::default_provider());
        let current = Arc::new(Current(RwLock::new(Arc::new(files.read(&provider)?))));
        let resolver: Arc<dyn ResolvesServerCert> = Arc::<Current>::clone(&current);
        let unusable = |error: rustls::Error| files.unusable(error.to_string());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .with_no_client_auth()
            .with_cert_resolver(resolver);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Tls { files, current, config: Arc::new(config) })
    }

    /// How connections shake hands.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }

    /// Reads the files again for ever, whenever one of them has changed. Where that fails, the
    /// certificate stays as it is.
    pub(crate) async fn renew(self) {
        let mut read = self.stamps().await;
        let mut last = read;
        loop {
            tokio::time::sleep(LOOK).await;
            let now = self.stamps().await;
            let rests = now == last;
            last = now;
            if !rests || now == read {
                continue;
            }
            read = now;
            self.renew_now().await;
        }
    }

    /// Reads the files again. Where that fails, the certificate stays as it is.
    pub(crate) async fn renew_now(&self) {
        let tls = self.clone();
        match tokio::task::spawn_blocking(move || tls.read_again()).await {
            Ok(Ok(())) => tracing::info!(target: "server", "the certificate was read again"),
            Ok(Err(error)) => {
                tracing::error!(target: "server", %error, "the certificate stays the old one");
            }
            Err(_) => tracing::error!(target: "server", "reading the certificate failed"),
        }
    }

    fn read_again(&self) -> Result<(), TlsError> {
        let new = Arc::new(self.files.read(self.config.crypto_provider())?);
        *self.current.0.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }

    async fn stamps(&self) -> [Stamp; 2] {
        let Files { certificate, key } = self.files.clone();
        // A disk on a network may let its askers wait.
        let stamps = move || [stamp(&certificate), stamp(&key)];
        tokio::task::spawn_blocking(stamps).await.unwrap_or_default()
    }
}

impl Files {
    fn read(&self, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
        let (certificate, key) = (name(&self.certificate), name(&self.key));
        let text = contents(&self.certificate)?;
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
        let chain = chain.map_err(|error| broken(&certificate, &error))?;
        if chain.is_empty() {
            return Err(TlsError::NoCertificate(certificate));
        }
        let text = contents(&self.key)?;
        let has = |mark: &[u8]| text.windows(mark.len()).any(|part| part == mark);
        let private = PrivateKeyDer::from_pem_slice(&text).map_err(|error| match error {
            _ if has(ENCRYPTED) => TlsError::Encrypted(key.clone()),
            pem::Error::NoItemsFound => TlsError::NoKey(key.clone()),
            error => broken(&key, &error),
        })?;
        if has(ENCRYPTED_TOO) {
            return Err(TlsError::Encrypted(key));
        }
        CertifiedKey::from_der(chain, private, provider).map_err(|error| match error {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                TlsError::Mismatch { certificate, key }
            }
            error => self.unusable(error.to_string()),
        })
    }

    fn unusable(&self, reason: String) -> TlsError {
        let (certificate, key) = (name(&self.certificate), name(&self.key));
        TlsError::Unusable { certificate, key, reason }
    }
}

fn name(path: &Path) -> String {
    path.display().to_string()
}

fn broken(file: &str, error: &pem::Error) -> TlsError {
    TlsError::Pem { file: file.to_owned(), reason: error.to_string() }
}

fn contents(path: &Path) -> Result<Vec<u8>, TlsError> {
    let failed = |reason| TlsError::Read { file: name(path), reason };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(LONGEST + 1).read_to_end(&mut bytes).map_err(failed)?;
    match bytes.len() as u64 > LONGEST {
        true => Err(TlsError::TooLong(name(path))),
        false => Ok(bytes),
    }
}

/// The device, number, length and time of the last change of the file at `path`; none where it
/// cannot be had.
fn stamp(path: &Path) -> Stamp {
    let of = path.metadata().ok()?;
    Some((of.dev(), of.ino(), of.len(), of.ctime(), of.ctime_nsec()))
}
