//! Abort codes: the numbers that a failed call carries on the wire.
//!
//! This is the only place that maps errors to wire codes. Names and numbers are those of the `com_err` tables
//! and headers that clients were built with; file servers send the "unified" (UAE) numbers for errno values,
//! since errno differs between systems.

#![allow(clippy::unreadable_literal, reason = "the numbers are those that com_err prints")]

use std::fmt;

/// An error code that ends a call; never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AbortCode(pub i32);

macro_rules! codes {
    ($($(#[$section:meta])* { $($name:ident = $value:expr;)* })*) => {
        #[allow(missing_docs)]
        impl AbortCode {
            $($(pub const $name: AbortCode = AbortCode($value);)*)*
        }

        /// Every named code, for lookups. If a number has two names, the first one is used.
        const NAMES: &[(i32, &str)] = &[$($(($value, stringify!($name)),)*)*];
    };
}

codes! {
    // Rx itself (rx.h)
    {
        RX_CALL_DEAD = -1;
        RX_INVALID_OPERATION = -2;
        RX_CALL_TIMEOUT = -3;
        RX_EOF = -4;
        RX_PROTOCOL_ERROR = -5;
        RX_USER_ABORT = -6;
        RX_ADDRINUSE = -7;
        RX_MSGSIZE = -8;
        RX_CALL_IDLE = -9;
        RX_RESTARTING = -100;
        RXGEN_CC_MARSHAL = -450;
        RXGEN_CC_UNMARSHAL = -451;
        RXGEN_SS_MARSHAL = -452;
        RXGEN_SS_UNMARSHAL = -453;
        RXGEN_DECODE = -454;
        RXGEN_OPCODE = -455;
    }
    // Volume package, known to every client (VICE_SPECIAL_ERRORS)
    {
        VSALVAGE = 101;
        VNOVNODE = 102;
        VNOVOL = 103;
        VVOLEXISTS = 104;
        VNOSERVICE = 105;
        VOFFLINE = 106;
        VONLINE = 107;
        VDISKFULL = 108;
        VOVERQUOTA = 109;
        VBUSY = 110;
        VMOVED = 111;
        VIO = 112;
        VSALVAGING = 113;
        VRESTARTING = -100;
    }
    // rxkad
    {
        RXKADINCONSISTENCY = 19270400;
        RXKADPACKETSHORT = 19270401;
        RXKADLEVELFAIL = 19270402;
        RXKADTICKETLEN = 19270403;
        RXKADOUTOFSEQUENCE = 19270404;
        RXKADNOAUTH = 19270405;
        RXKADBADKEY = 19270406;
        RXKADBADTICKET = 19270407;
        RXKADUNKNOWNKEY = 19270408;
        RXKADEXPIRED = 19270409;
        RXKADSEALEDINCON = 19270410;
        RXKADDATALEN = 19270411;
        RXKADILLEGALLEVEL = 19270412;
    }
    // Volume location database
    {
        VL_IDEXIST = 363520;
        VL_IO = 363521;
        VL_NAMEEXIST = 363522;
        VL_CREATEFAIL = 363523;
        VL_NOENT = 363524;
        VL_EMPTY = 363525;
        VL_ENTDELETED = 363526;
        VL_BADNAME = 363527;
        VL_BADINDEX = 363528;
        VL_BADVOLTYPE = 363529;
        VL_BADSERVER = 363530;
        VL_BADPARTITION = 363531;
        VL_REPSFULL = 363532;
        VL_NOREPSERVER = 363533;
        VL_DUPREPSERVER = 363534;
        VL_RWNOTFOUND = 363535;
        VL_BADREFCOUNT = 363536;
        VL_SIZEEXCEEDED = 363537;
        VL_BADENTRY = 363538;
        VL_BADVOLIDBUMP = 363539;
        VL_IDALREADYHASHED = 363540;
        VL_ENTRYLOCKED = 363541;
        VL_BADVOLOPER = 363542;
        VL_BADRELLOCKTYPE = 363543;
        VL_RERELEASE = 363544;
        VL_BADSERVERFLAG = 363545;
        VL_PERM = 363546;
        VL_NOMEM = 363547;
        VL_BADVERSION = 363548;
        VL_INDEXERANGE = 363549;
        VL_MULTIPADDR = 363550;
        VL_BADMASK = 363551;
        VL_DBBAD = 363552;
    }
    // Protection database
    {
        PREXIST = 267264;
        PRIDEXIST = 267265;
        PRNOIDS = 267266;
        PRDBFAIL = 267267;
        PRNOENT = 267268;
        PRPERM = 267269;
        PRNOTGROUP = 267270;
        PRNOTUSER = 267271;
        PRBADNAM = 267272;
        PRBADARG = 267273;
        PRNOMORE = 267274;
        PRDBBAD = 267275;
        PRGROUPEMPTY = 267276;
        PRINCONSISTENT = 267277;
        PRDBADDR = 267278;
        PRTOOMANY = 267279;
        PRNOMEM = 267280;
        PRINTERNAL = 267281;
        PRNAMETOOLONG = 267282;
    }
    // Volume server
    {
        VOLSERTRELE_ERROR = 1492325120;
        VOLSERNO_OP = 1492325121;
        VOLSERREAD_DUMPERROR = 1492325122;
        VOLSERDUMPERROR = 1492325123;
        VOLSERATTACH_ERROR = 1492325124;
        VOLSERILLEGAL_PARTITION = 1492325125;
        VOLSERDETACH_ERROR = 1492325126;
        VOLSERBAD_ACCESS = 1492325127;
        VOLSERVLDB_ERROR = 1492325128;
        VOLSERBADNAME = 1492325129;
        VOLSERVOLMOVED = 1492325130;
        VOLSERBADOP = 1492325131;
        VOLSERBADRELEASE = 1492325132;
        VOLSERVOLBUSY = 1492325133;
        VOLSERNO_MEMORY = 1492325134;
        VOLSERNOVOL = 1492325135;
        VOLSERMULTIRWVOL = 1492325136;
        VOLSERFAILEDOP = 1492325137;
    }
    // Basic overseer
    {
        BZNOTACTIVE = 39424;
        BZNOENT = 39425;
        BZBUSY = 39426;
        BZEXISTS = 39427;
        BZNOCREATE = 39428;
        BZDOM = 39429;
        BZACCESS = 39430;
        BZSYNTAX = 39431;
        BZIO = 39432;
        BZNET = 39433;
        BZBADTYPE = 39434;
        BZKEYINUSE = 39435;
        BZENCREQ = 39436;
    }
    // Ubik
    {
        UNOQUORUM = 5376;
        UNOTSYNC = 5377;
    }
    // Unified AFS errors: the portable form of errno
    {
        UAEPERM = 49733376;
        UAENOENT = 49733377;
        UAESRCH = 49733378;
        UAEINTR = 49733379;
        UAEIO = 49733380;
        UAENXIO = 49733381;
        UAE2BIG = 49733382;
        UAENOEXEC = 49733383;
        UAEBADF = 49733384;
        UAECHILD = 49733385;
        UAEAGAIN = 49733386;
        UAENOMEM = 49733387;
        UAEACCES = 49733388;
        UAEFAULT = 49733389;
        UAENOTBLK = 49733390;
        UAEBUSY = 49733391;
        UAEEXIST = 49733392;
        UAEXDEV = 49733393;
        UAENODEV = 49733394;
        UAENOTDIR = 49733395;
        UAEISDIR = 49733396;
        UAEINVAL = 49733397;
        UAENFILE = 49733398;
        UAEMFILE = 49733399;
        UAENOTTY = 49733400;
        UAETXTBSY = 49733401;
        UAEFBIG = 49733402;
        UAENOSPC = 49733403;
        UAESPIPE = 49733404;
        UAEROFS = 49733405;
        UAEMLINK = 49733406;
        UAEPIPE = 49733407;
        UAEDOM = 49733408;
        UAERANGE = 49733409;
        UAEDEADLK = 49733410;
        UAENAMETOOLONG = 49733411;
        UAENOLCK = 49733412;
        UAENOSYS = 49733413;
        UAENOTEMPTY = 49733414;
        UAELOOP = 49733415;
        UAEWOULDBLOCK = 49733416;
        UAENOMSG = 49733417;
        UAEIDRM = 49733418;
        UAECHRNG = 49733419;
        UAEL2NSYNC = 49733420;
        UAEL3HLT = 49733421;
        UAEL3RST = 49733422;
        UAELNRNG = 49733423;
        UAEUNATCH = 49733424;
        UAENOCSI = 49733425;
        UAEL2HLT = 49733426;
        UAEBADE = 49733427;
        UAEBADR = 49733428;
        UAEXFULL = 49733429;
        UAENOANO = 49733430;
        UAEBADRQC = 49733431;
        UAEBADSLT = 49733432;
        UAEBFONT = 49733433;
        UAENOSTR = 49733434;
        UAENODATA = 49733435;
        UAETIME = 49733436;
        UAENOSR = 49733437;
        UAENONET = 49733438;
        UAENOPKG = 49733439;
        UAEREMOTE = 49733440;
        UAENOLINK = 49733441;
        UAEADV = 49733442;
        UAESRMNT = 49733443;
        UAECOMM = 49733444;
        UAEPROTO = 49733445;
        UAEMULTIHOP = 49733446;
        UAEDOTDOT = 49733447;
        UAEBADMSG = 49733448;
        UAEOVERFLOW = 49733449;
        UAENOTUNIQ = 49733450;
        UAEBADFD = 49733451;
        UAEREMCHG = 49733452;
        UAELIBACC = 49733453;
        UAELIBBAD = 49733454;
        UAELIBSCN = 49733455;
        UAELIBMAX = 49733456;
        UAELIBEXEC = 49733457;
        UAEILSEQ = 49733458;
        UAERESTART = 49733459;
        UAESTRPIPE = 49733460;
        UAEUSERS = 49733461;
        UAENOTSOCK = 49733462;
        UAEDESTADDRREQ = 49733463;
        UAEMSGSIZE = 49733464;
        UAEPROTOTYPE = 49733465;
        UAENOPROTOOPT = 49733466;
        UAEPROTONOSUPPORT = 49733467;
        UAESOCKTNOSUPPORT = 49733468;
        UAEOPNOTSUPP = 49733469;
        UAEPFNOSUPPORT = 49733470;
        UAEAFNOSUPPORT = 49733471;
        UAEADDRINUSE = 49733472;
        UAEADDRNOTAVAIL = 49733473;
        UAENETDOWN = 49733474;
        UAENETUNREACH = 49733475;
        UAENETRESET = 49733476;
        UAECONNABORTED = 49733477;
        UAECONNRESET = 49733478;
        UAENOBUFS = 49733479;
        UAEISCONN = 49733480;
        UAENOTCONN = 49733481;
        UAESHUTDOWN = 49733482;
        UAETOOMANYREFS = 49733483;
        UAETIMEDOUT = 49733484;
        UAECONNREFUSED = 49733485;
        UAEHOSTDOWN = 49733486;
        UAEHOSTUNREACH = 49733487;
        UAEALREADY = 49733488;
        UAEINPROGRESS = 49733489;
        UAESTALE = 49733490;
        UAEUCLEAN = 49733491;
        UAENOTNAM = 49733492;
        UAENAVAIL = 49733493;
        UAEISNAM = 49733494;
        UAEREMOTEIO = 49733495;
        UAEDQUOT = 49733496;
        UAENOMEDIUM = 49733497;
        UAEMEDIUMTYPE = 49733498;
    }
}

impl AbortCode {
    /// Returns the code's name if it is listed here.
    pub fn name(self) -> Option<&'static str> {
        NAMES.iter().find(|(value, _)| *value == self.0).map(|(_, name)| *name)
    }

    /// Whether the code is one of Rx itself and not of a service: no answer, or unable to serve. It is unknown whether the
    /// call was executed. Codes of the generated stubs (RXGEN) are answers.
    pub fn is_of_rx(self) -> bool {
        (AbortCode::RX_RESTARTING..=AbortCode::RX_CALL_DEAD).contains(&self)
    }

    /// Whether the code is one of rxkad: the connection could not be authenticated.
    pub fn is_of_rxkad(self) -> bool {
        (AbortCode::RXKADINCONSISTENCY..=AbortCode::RXKADILLEGALLEVEL).contains(&self)
    }
}

impl fmt::Display for AbortCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({})", self.0),
            None => self.0.fmt(f),
        }
    }
}

impl std::error::Error for AbortCode {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_codes_match_the_numbers_clients_know() {
        // com_err: the base is the table's name in base 64, shifted left by 8.
        assert_eq!(AbortCode::VL_NOENT.0, 363_524);
        assert_eq!(AbortCode::PRNOENT.0, 267_268);
        assert_eq!(AbortCode::RXKADUNKNOWNKEY.0, 19_270_408);
        assert_eq!(AbortCode::VOLSERNOVOL.0, 1_492_325_135);
        assert_eq!(AbortCode::UAENOENT.0, 49_733_377);
        assert_eq!(AbortCode::UAEEXIST.to_string(), "UAEEXIST (49733392)");
        assert_eq!(AbortCode(12345).to_string(), "12345");
    }

    #[test]
    fn codes_of_rx_and_rxkad_are_no_answers() {
        let rx = [AbortCode::RX_CALL_DEAD, AbortCode::RX_CALL_IDLE, AbortCode::RX_RESTARTING];
        let rxkad = [AbortCode::RXKADINCONSISTENCY, AbortCode::RXKADEXPIRED, AbortCode::RXKADILLEGALLEVEL];
        let answers = [AbortCode(1), AbortCode(-101), AbortCode::RXGEN_CC_MARSHAL, AbortCode::RXGEN_OPCODE];
        let answers = answers.into_iter().chain([AbortCode(19_270_399), AbortCode(19_270_413)]);
        for (codes, expected) in [
            (rx.to_vec(), (true, false)),
            (rxkad.to_vec(), (false, true)),
            (answers.collect(), (false, false)),
        ] {
            for code in codes {
                assert_eq!((code.is_of_rx(), code.is_of_rxkad()), expected, "{code}");
            }
        }
    }
}
