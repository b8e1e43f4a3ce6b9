//! Certificates of all kinds, signed by a test's own authority.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SerialNumber, date_time_ymd,
};

/// A certificate authority.
pub struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, both in PEM.
pub type Pair = (String, String);

impl Authority {
    /// Makes an authority of that name.
    pub fn new(name: &str) -> Self {
        let mut params = named(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        Self { pem, issuer }
    }

    /// Returns the authority's own certificate, in PEM.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Makes a certificate for a host.
    pub fn host(&self, host: &str) -> Pair {
        self.sign(hosts(host))
    }

    /// Makes a certificate for a host, valid from the beginning of the first year to the beginning
    /// of the second.
    pub fn dated(&self, host: &str, years: (i32, i32)) -> Pair {
        let mut params = hosts(host);
        params.not_before = date_time_ymd(years.0, 1, 1);
        params.not_after = date_time_ymd(years.1, 1, 1);
        self.sign(params)
    }

    /// Makes a certificate for a client of that name, with the number 0xABCD, valid in those years.
    pub fn client(&self, name: &str, years: (i32, i32)) -> Pair {
        let mut params = named(name);
        params
            .distinguished_name
            .push(DnType::OrganizationName, "Test, Inc.");
        params.serial_number = Some(SerialNumber::from(vec![0xAB, 0xCD]));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.not_before = date_time_ymd(years.0, 1, 1);
        params.not_after = date_time_ymd(years.1, 1, 1);
        self.sign(params)
    }

    fn sign(&self, params: CertificateParams) -> Pair {
        let key = KeyPair::generate().unwrap();
        let signed = params.signed_by(&key, &self.issuer).unwrap();
        (signed.pem(), key.serialize_pem())
    }
}

fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn hosts(host: &str) -> CertificateParams {
    let mut params = CertificateParams::new([host.to_owned()]).unwrap();
    params.distinguished_name = named(host).distinguished_name;
    params
}
