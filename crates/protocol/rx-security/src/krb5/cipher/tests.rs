use super::*;
use crate::test_support::hex;

/// Number, plaintext, usage, key, ciphertext: messages that MIT Kerberos must be able to decrypt.
const MIT: &[(i32, &str, u32, &str, &str)] = &[
    (1, "", 0, "45e6087cdf138fb5", "28f6b09a012bccf72fb05122b2839e6e"),
    (1, "1", 1, "92a7155810586b2f", "b4c871c2f3e7bf7605efd62f2eeec205"),
    (1, "9 bytesss", 2, "a4b9514a61646423", "5f14c35178d33d7cde0ec169c623cc8321b7b8bd34ea7efe"),
    (
        1,
        "30 bytes bytes bytes bytes byt",
        4,
        "bc8f70fd2097d67c",
        "38d632d2c20a7c2ea250fc8ece42938e92a9f5d302502665\
         c1a33729c1050dc2056298fbfb1682ceeb65e59204fda7df",
    ),
    (3, "", 0, "4a545e0bf7a22631", "784cd81591a034be82556f56dca3224b62d9956fa90b1b93"),
    (3, "1", 1, "d5804a269dc4e645", "ffa25c7be287596bfe58126e90aaa0f12d9a82a0d86df6d5f9074b6b399e7ff1"),
    (
        3,
        "13 bytes byte",
        3,
        "7fda3e62ad8af18c",
        "d7a8032e19994c928777506595fbda9883158a8514548e29\
         6e911c29f465c672366000558bfc2e88",
    ),
    (
        16,
        "",
        0,
        "7a25df8992296dceda0e135bc4046e2375b3c14c98fbc162",
        "548af4d504f7d723303f12175fe8386b7b5335a967bad61f3bf0b143",
    ),
    (
        16,
        "9 bytesss",
        2,
        "2fd0f725ce04100d2fc8a18098831f850b45d9ef850bd920",
        "cf9144ebc8697981075a8bad8d74e5d7d591eb7d9770c7ad\
         a25ee8c5b3d69444dfec79a5b7a01482d9af74e6",
    ),
    (
        17,
        "",
        0,
        "5a5c0f0ba54f3828b2195e66ca24a289",
        "49ff8e11c173d9583a3254fbe7b1f1df36c538e8416784a1672e6676",
    ),
    (
        17,
        "1",
        1,
        "98450e3f3baa13f5c99beb936981b06f",
        "f86742f537b35dc2174a4dbaa920faf9042090b065e1ebb1cad9a65394",
    ),
    (
        17,
        "30 bytes bytes bytes bytes byt",
        4,
        "dceeb70b3de76562e689226c76429148",
        "c96081032d5d8eeb7e32b4089f789d0faa481dea74c0f97cbf3146ddfcf8e800\
         156ecb532fc203e30ff600b63b350939fece510f02d7ff1e7bac",
    ),
    (
        18,
        "",
        0,
        "17f275f2954f2ed1f90c377ba7f4d6a369aa0136e0bf0c927ad6133c693759a9",
        "e5094c55ee7b38262e2b044280b069379a95bf95bd8376fb3281b435",
    ),
    (
        18,
        "1",
        1,
        "b9477e1ff0329c0050e20ce6c72d2dff27e8fe541ab0954429a9cb5b4f7b1e2a",
        "406150b97aeb76d43b36b62cc1ecdfbe6f40e95755e0beb5c27825f3a4",
    ),
    (
        18,
        "13 bytes byte",
        3,
        "e5a72be9b7926c1225bafef9c1872e7ba4cdb2b17893d84abd90acdd8764d966",
        "d8f1aafeec84587cc3e700a774e56651a6d693e174ec4473\
         b5e6d96f80297a653fb818ad893e719f96",
    ),
    (
        18,
        "30 bytes bytes bytes bytes byt",
        4,
        "f1c795e9248a09338d82c3f8d5b567040b0110736845041347235b1404231398",
        "d1137a4d634cfece924dbc3bf6790648bd5cff7de0e7b99460211d0daef3d79a\
         295c688858f3b34b9cbd6eebae81daf6b734d4d498b6714f1c1d",
    ),
    (23, "", 0, "f81fec39255f5784e850c4377c88bd85", "02c1eb15586144122ec717763dd348bf00434ddc6585954c"),
    (
        23,
        "9 bytesss",
        2,
        "3e40ab6093695281b3ac1a9304224d98",
        "0f9ad121d99d4a09448e4f1f718c4f5cbe6096262c66f29df232a87c9f98755d55",
    ),
];

/// Number, key, confounder, length of the plaintext (0, 1, 2, ...), ciphertext: RFC 8009, appendix A.
const SHA2: &[(i32, &str, usize, &str)] = &[
    (
        19,
        "7e5895eaf2672435bad817f545a37148",
        0,
        "ef85fb890bb8472f4dab20394dca781dad877eda39d50c870c0d5a0a8e48c718",
    ),
    (
        19,
        "7bca285e2fd4130fb55b1a5c83bc5b24",
        6,
        "84d7f30754ed987bab0bf3506beb09cfb55402cef7e6877ce99e247e52d16ed4421dfdf8976c",
    ),
    (
        19,
        "56ab21713ff62c0a1457200f6fa9948f",
        16,
        "3517d640f50ddc8ad3628722b3569d2ae07493fa8263254080ea65c1008e8fc2\
         95fb4852e7d83e1e7c48c37eebe6b0d3",
    ),
    (
        19,
        "a7a4e29a4728ce10664fb64e49ad3fac",
        21,
        "720f73b18d9859cd6ccb4346115cd336c70f58edc0c4437c5573544c31c813bc\
         e1e6d072c186b39a413c2f92ca9b8334a287ffcbfc",
    ),
    (
        20,
        "f764e9fa15c276478b2c7d0c4e5f58e4",
        0,
        "41f53fa5bfe7026d91faf9be959195a058707273a96a40f0a01960621ac612748b9bbfbe7eb4ce3c",
    ),
    (
        20,
        "b80d3251c1f6471494256ffe712d0b9a",
        6,
        "4ed7b37c2bcac8f74f23c1cf07e62bc7b75fb3f637b9f559c7f664f69eab7b60\
         92237526ea0d1f61cb20d69d10f2",
    ),
    (
        20,
        "53bf8a0d105265d4e276428624ce5e63",
        16,
        "bc47ffec7998eb91e8115cf8d19dac4bbbe2e163e87dd37f49beca92027764f6\
         8cf51f14d798c2273f35df574d1f932e40c4ff255b36a266",
    ),
    (
        20,
        "763e65367e864f02f55153c7e3b58af1",
        21,
        "40013e2df58e8751957d2878bcd2d6fe101ccfd556cb1eae79db3c3ee86429f2\
         b2a602ac86fef6ecb647d6295fae077a1feb517508d2c16b4192e01f62",
    ),
];

fn key(number: i32, bytes: &[u8]) -> ServiceKey {
    ServiceKey::new(number, bytes).unwrap()
}

#[test]
fn published_ciphertexts_open() {
    for (number, plain, usage, base, sealed) in MIT {
        let key = key(*number, &hex(base));
        let enctype = Enctype::from_number(*number).unwrap();
        let opened = open(enctype, &key, *usage, &hex(sealed)).unwrap();
        assert!(opened.starts_with(plain.as_bytes()), "type {number}, {plain:?}");
        assert!(opened.len() < plain.len() + 8, "type {number}, {plain:?}");
    }
}

#[test]
fn rfc_8009_samples() {
    for (number, confounder, length, sealed) in SHA2 {
        let base = match number {
            19 => hex("3705d96080c17728a0e800eab6e0d23c"),
            _ => hex("6d404d37faf79f9df0d33568d320669800eb4836472ea8a026d16b7182460c52"),
        };
        let key = key(*number, &base);
        let plain: Vec<u8> = (0..*length as u8).collect();
        let confounder = hex(confounder).try_into().unwrap();
        assert_eq!(seal(&key, USAGE_TICKET, confounder, &plain), hex(sealed));
        let opened = open(key.enctype(), &key, USAGE_TICKET, &hex(sealed)).unwrap();
        assert_eq!(*opened, plain);
    }
}

#[test]
fn each_type_opens_only_its_own_sealed_data() {
    for enctype in Enctype::ALL {
        let key = key(enctype.number(), &vec![0x5a; enctype.key_bytes()]);
        let other = self::key(enctype.number(), &vec![0x32; enctype.key_bytes()]);
        for length in [0, 1, 7, 8, 9, 31, 32, 33, 200] {
            let plain: Vec<u8> = (0..length).map(|byte| byte as u8).collect();
            let sealed = seal(&key, USAGE_TICKET, [7; 16], &plain);
            let opened = open(enctype, &key, USAGE_TICKET, &sealed).unwrap();
            assert!(opened.starts_with(&plain), "{enctype:?}, {length} bytes");
            assert!(open(enctype, &other, USAGE_TICKET, &sealed).is_err(), "{enctype:?}");
            for at in 0..sealed.len() {
                let mut damaged = sealed.clone();
                damaged[at] ^= 0x10;
                assert!(open(enctype, &key, USAGE_TICKET, &damaged).is_err(), "{enctype:?} at {at}");
                assert!(open(enctype, &key, USAGE_TICKET, &sealed[..at]).is_err(), "{enctype:?}");
            }
        }
    }
}

/// RFC 3961, A.5: the unusual CRC.
#[test]
fn crc_vectors() {
    for (text, crc) in [
        (&b"foo"[..], 0x7332_bc33),
        (b"test0123456789", 0xb83e_88d6),
        (b"MASSACHVSETTS INSTITVTE OF TECHNOLOGY", 0xe341_80f7),
        (&[0x80, 0, 0, 0], 0xed59_b63b),
        (&[0, 0, 0, 1], 0x7707_3096),
    ] {
        assert_eq!(crc32(text), crc);
    }
}
