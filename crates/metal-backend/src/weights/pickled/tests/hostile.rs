//! Files that are made to harm whoever reads them.

use super::{
    Entry, NAME, entry, file, float, global, int, ints, of_one, read, rebuilt, storage, text,
    tuple, zip,
};

/// Names that a pickle must not use.
const GLOBALS: [(&str, &str); 40] = [
    ("os", "system"),
    ("posix", "system"),
    ("nt", "system"),
    ("os", "popen"),
    ("os", "execv"),
    ("subprocess", "Popen"),
    ("subprocess", "check_output"),
    ("builtins", "eval"),
    ("builtins", "exec"),
    ("builtins", "compile"),
    ("builtins", "getattr"),
    ("builtins", "__import__"),
    ("builtins", "open"),
    ("builtins", "dict"),
    ("__builtin__", "eval"),
    ("__builtin__", "getattr"),
    ("importlib", "import_module"),
    ("runpy", "_run_code"),
    ("pty", "spawn"),
    ("shutil", "rmtree"),
    ("socket", "create_connection"),
    ("sys", "exit"),
    ("webbrowser", "open"),
    ("pickle", "loads"),
    ("marshal", "loads"),
    ("types", "FunctionType"),
    ("functools", "partial"),
    ("operator", "attrgetter"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy.testing._private.utils", "runstring"),
    ("_codecs", "encode"),
    ("torch", "load"),
    ("torch", "Storage"),
    ("torch", "QInt8Storage"),
    ("torch.cuda", "FloatStorage"),
    ("torch.hub", "load"),
    ("torch.jit", "load"),
    ("torch.storage", "_load_from_bytes"),
    ("torch._utils", "_rebuild_sparse_tensor"),
    ("collections", "OrderedDict.fromkeys"),
];

#[test]
fn a_pickle_that_names_a_function_is_refused_by_that_name() {
    let mark = std::env::temp_dir().join(format!("pickled-{}", std::process::id()));
    let command = text(&format!("touch {}", mark.display()));
    for (module, name) in GLOBALS {
        let call =
            [&global(module, name)[..], &tuple(std::slice::from_ref(&command)), b"R"].concat();
        let fault = format!("the global `{module}.{name}` is none of a dictionary of tensors");
        for pickle in [of_one(&call), [b"\x80\x02", &call[..], b"."].concat()] {
            let error = read(&file(&pickle)).expect_err("nothing is called");
            assert!(error.contains(&fault), "{error}");
            assert!(error.contains(NAME), "{error}");
        }
    }
    assert!(!mark.exists());
}

#[test]
fn instructions_that_torch_does_not_write_are_refused_by_their_code() {
    // All others of protocols 0 to 5.
    let codes = b"0125FIoLVPSTUBCilgdnp\x81\x82\x83\x84\x8b\x8c\x8d\x8e\x8f\x90\x91\x92\x93\x94\x95\x96\x97\x98";
    for code in codes {
        let pickle = [&b"\x80\x02}"[..], &[*code], b"os\nsystem\n."].concat();
        let error = read(&file(&pickle)).expect_err("it is not known");
        assert!(error.contains(&format!("byte 3: the instruction 0x{code:02x}")), "{error}");
    }
    for protocol in [0, 1, 3, 4, 5, 255] {
        let error = read(&file(&[0x80, protocol, b'}', b'.'])).expect_err("it is not known");
        assert!(error.contains(&format!("protocol {protocol}, where torch writes 2")), "{error}");
    }
}

#[test]
fn pickles_that_torch_would_not_write_are_told_by_their_fault() {
    let ordered = global("collections", "OrderedDict");
    let rebuild = global("torch._utils", "_rebuild_tensor_v2");
    let one = || storage("Float", "0", 4);
    let deep = [&b"\x80\x02)"[..], &[0x85; 100]].concat();
    let loops = [&b"\x80\x02}q\0"[..], &text("a"), b"h\0s."].concat();
    let called = |function: &[u8], arguments: &[u8]| of_one(&[function, arguments, b"R"].concat());
    let wide = [&b"\x80\x02("[..], &b"K\x01".repeat(100_000), b"tq\0"].concat();
    let bomb = [&rebuild[..], b"(", &one(), b"K\0h\0h\0N)tR"].concat();
    let of = |kind: &[u8], key: &str, count: i64| {
        let id = tuple(&[text("storage"), kind.to_vec(), text(key), text("cpu"), int(count)]);
        of_one(&[&id[..], b"Q"].concat())
    };
    let plain = |value: &[u8]| [b"\x80\x02", value].concat();
    for (name, pickle, fault) in [
        ("nothing", vec![], "it asks for 1 bytes, and 0 are left"),
        ("no end", plain(b"}"), "it asks for 1 bytes, and 0 are left"),
        ("an end alone", plain(b"."), "it ends without a value"),
        ("a list", plain(b"]."), "it holds a list, not a dictionary"),
        (
            "a tensor alone",
            plain(&[&rebuilt(one(), 0, &[4], &[1])[..], b"."].concat()),
            "a tensor, not",
        ),
        ("two values", plain(b"}}."), "values left over"),
        ("a mark left", plain(b"(}."), "values left over"),
        ("a mark at the end", plain(b"(."), "it holds a mark"),
        ("an empty stack", plain(b"R."), "it takes a value, and there is none"),
        ("a mark taken", plain(b"(R."), "it takes a value, and there is none"),
        ("items of nothing", plain(b"(K\x01K\x02u."), "a dictionary, and there is none"),
        ("no mark", plain(b"}K\x01K\x02u."), "up to a mark"),
        ("a tuple of nothing", plain(b"t."), "up to a mark"),
        ("three of two", plain(b"K\x01K\x02\x87."), "it takes a value"),
        ("half an item", plain(b"}(K\x01u."), "a name without a value"),
        ("items of a number", plain(b"K\x01(K\x01K\x02u."), "it changes a number"),
        ("facts of a number", plain(b"K\x01}b."), "it changes a number"),
        ("a value of nothing", plain(b"q\0."), "it remembers a value, and there is none"),
        ("a value that is not kept", plain(b"h\x07."), "value 7 was not kept"),
        ("a place that is not kept", plain(b"j\xff\xff\xff\xff."), "value 4294967295 was not kept"),
        ("half a place", plain(b"}r\0\0"), "it asks for 4 bytes"),
        ("more to a number", plain(b"K\x01K\x02a."), "it adds to a list"),
        ("more to nothing", plain(b"(K\x01e."), "it adds to a list"),
        ("a dictionary in itself", loops, "`a` is a dictionary, not a tensor"),
        ("a text of 4 GiB", plain(b"X\xff\xff\xff\xffa"), "it asks for 4294967295 bytes"),
        ("a text of no UTF-8", plain(b"X\x01\0\0\0\xff"), "a text that is not UTF-8"),
        (
            "a number of 255 bytes",
            plain(&[&b"\x8a\xff"[..], &[1; 255]].concat()),
            "at most 8 are read",
        ),
        ("half a number", plain(b"\x8a\x08\0"), "it asks for 8 bytes"),
        ("a name without an end", plain(b"ccollections"), "a name without an end"),
        ("half a name", plain(b"ccollections\nOrdered"), "a name without an end"),
        ("a name of no UTF-8", plain(b"c\xff\nx\n"), "a name that is not UTF-8"),
        ("tuples in tuples", deep, "more than 16 tuples within each other"),
        ("a number", of_one(&int(1)), "`a` is a number, not a tensor"),
        ("nothing as a value", of_one(b"N"), "`a` is a constant, not a tensor"),
        ("a text", of_one(&text("b")), "`a` is a text, not a tensor"),
        ("a list", of_one(b"]"), "`a` is a list, not a tensor"),
        ("a type", of_one(&ordered), "`a` is a function or type, not a tensor"),
        ("a storage", of_one(&one()), "`a` is a storage, not a tensor"),
        ("a number as a name", plain(b"}K\x01Ns."), "a number is the name of a constant"),
        ("a call of a number", called(b"K\x01", b")"), "a call of a number"),
        ("a call of a tensor", called(&rebuilt(one(), 0, &[4], &[1]), b")"), "a call of a tensor"),
        ("a call of a storage", called(&global("torch", "FloatStorage"), b")"), "other arguments"),
        ("a call with a list", called(&ordered, b"]"), "it calls with a list, not a tuple"),
        ("a dictionary of pairs", called(&ordered, b"]\x85"), "other arguments than torch's"),
        ("a tensor of nothing", called(&rebuild, b")"), "other arguments than torch's"),
        ("a tensor of numbers", called(&rebuild, &ints(&[1, 2, 3, 4])), "other arguments"),
        (
            "a parameter of a number",
            called(&global("torch._utils", "_rebuild_parameter"), b"K\x01\x85"),
            "other arguments",
        ),
        (
            "sizes that are none",
            called(&rebuild, &tuple(&[one(), int(0), int(4), ints(&[1])])),
            "sizes of a tensor that are a number",
        ),
        (
            "a size that is a text",
            called(&rebuild, &tuple(&[one(), int(0), tuple(&[text("4")]), ints(&[1])])),
            "a size of a tensor that is a text",
        ),
        (
            "a wide tensor many times",
            [wide, bomb.repeat(9), b".".to_vec()].concat(),
            "a tensor of 100000 dimensions",
        ),
        ("steps without an end", plain(&b"}0".repeat(9)), "the instruction 0x30"),
        ("many steps", plain(&b"N".repeat(5 << 20)), "takes more than 4194304 steps"),
        ("many dictionaries", plain(&b"}".repeat(5 << 20)), "takes more than 4194304 steps"),
        ("an id that is a text", of_one(b"X\x01\0\0\0aQ"), "none of a storage"),
        (
            "an id of numbers",
            of_one(&[&ints(&[1, 2, 3, 4, 5])[..], b"Q"].concat()),
            "none of a storage",
        ),
        ("an id of a type that is none", of(&ordered, "0", 4), "none of a storage"),
        (
            "an id of a part",
            of_one(&[&tuple(&[text("storage")])[..], b"Q"].concat()),
            "none of a storage",
        ),
        (
            "a storage of -1",
            of(&global("torch", "FloatStorage"), "0", -1),
            "a storage of -1 numbers",
        ),
    ] {
        let error = read(&file(&pickle)).expect_err(name);
        assert!(error.contains(fault), "{name}: {error}");
    }
}

#[test]
fn tensors_that_do_not_lie_in_their_storage_are_named() {
    let of = |kind: &str, key: &str, count: i64| {
        of_one(&rebuilt(storage(kind, key, count), 0, &[1], &[1]))
    };
    let max = i64::MAX;
    for (name, pickle, fault) in [
        ("no storage", of("Float", "7", 4), "its storage `7` is not in the file"),
        ("a path", of("Float", "../../x", 4), "its storage `../../x` is not in the file"),
        ("a storage beyond its entry", of("Float", "0", 5), "has 16 bytes, too few for 5 numbers"),
        ("doubles beyond it", of("Double", "0", 3), "too few for 3 numbers of 8"),
        ("numbers beyond all", of("Long", "0", max), "too few for 9223372036854775807 numbers"),
        ("an offset beyond it", float(4, &[1], &[1]), "reaches beyond its storage of 4"),
        ("the largest offset", float(max, &[1], &[1]), "reaches beyond"),
        ("an offset of nothing", float(5, &[0], &[1]), "reaches beyond"),
        ("a negative offset", float(-1, &[1], &[1]), "the offset -1"),
        ("a row too many", float(0, &[3, 2], &[2, 1]), "several times"),
        ("a stride beyond it", float(0, &[2], &[4]), "reaches beyond"),
        ("the largest stride", float(0, &[2], &[max]), "reaches beyond"),
        ("strides that overflow", float(0, &[2, 2], &[max, max]), "reaches beyond"),
        ("a stride and an offset", float(3, &[3], &[max]), "reaches beyond"),
        ("a negative stride", float(3, &[2], &[-1]), "the size or stride -1"),
        ("a negative size", float(0, &[-1], &[1]), "the size or stride -1"),
        ("one number for all", float(0, &[1 << 30], &[0]), "several times, which is not read"),
        ("sizes that overflow", float(0, &[max, max], &[0, 0]), "dimension over 2"),
        ("sizes beyond memory", float(0, &[1 << 30; 4], &[0; 4]), "larger than any memory"),
        ("a size of 32 bits", float(0, &[1 << 31], &[0]), "dimension over 2"),
        ("more sizes than strides", float(0, &[1, 1], &[1]), "has 2 sizes and 1 strides"),
        ("no strides", float(0, &[1], &[]), "has 1 sizes and 0 strides"),
        ("many dimensions", float(0, &[1; 17], &[1; 17]), "a tensor of 17 dimensions"),
    ] {
        let error = read(&file(&pickle)).expect_err(name);
        assert!(error.contains(fault), "{name}: {error}");
    }
}

#[test]
fn zip_files_that_torch_would_not_write_are_told_by_their_fault() {
    let pickle = float(0, &[4], &[1]);
    let data = || entry("data/0", &[0; 16]);
    let main = || entry("data.pkl", &pickle);
    let sound = file(&pickle);
    let changed = |at_end: usize, value: &[u8]| {
        let mut bytes = sound.clone();
        let at = bytes.len() - at_end;
        bytes[at..at + value.len()].copy_from_slice(value);
        bytes
    };
    let bomb = Entry { method: 8, told: Some(9), ..entry("data/0", &[0; 16]) };
    let within = Entry { at: Some(8), ..data() };
    let beyond = Entry { at: Some(u32::MAX - 9), ..data() };
    let longer = Entry { told: Some(1 << 30), bytes: vec![0; 16], ..data() };
    let secret = Entry { flags: 1, ..data() };
    let other_order = [main(), data(), entry("byteorder", b"big")];
    let twin = Entry { name: "other/data.pkl".into(), ..main() };
    for (name, bytes, fault) in [
        ("nothing", vec![], "it is truncated, or no zip file"),
        ("a text", b"what it holds is something else".to_vec(), "no zip file"),
        ("a pointer", b"version https://git-lfs".to_vec(), "a pointer of git-lfs"),
        ("the older form", b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.".to_vec(), "before 1.6"),
        ("a pickle alone", pickle.clone(), "before 1.6"),
        ("half of it", sound[..sound.len() / 2].to_vec(), "no zip file"),
        ("a byte less", sound[..sound.len() - 1].to_vec(), "no zip file"),
        ("a list beyond the end", changed(6, &u32::MAX.to_le_bytes()), "reaches beyond byte"),
        (
            "a list elsewhere",
            changed(6, &1_u32.to_le_bytes()),
            "the list of entries ends in entry 0",
        ),
        ("a list of 4 GiB", changed(10, &u32::MAX.to_le_bytes()), "at most 262144"),
        ("more entries", changed(12, &9_u16.to_le_bytes()), "ends in entry 3 of 9"),
        ("a compressed entry", zip(&[main(), bomb]), "`archive/data/0` is compressed"),
        ("an encrypted entry", zip(&[main(), secret]), "is encrypted"),
        ("an entry twice", zip(&[main(), data(), data()]), "`archive/data/0` is there twice"),
        ("an entry beyond the end", zip(&[main(), beyond]), "reaches beyond"),
        ("an entry elsewhere", zip(&[main(), within]), "is not at byte 8"),
        ("an entry of 1 GiB", zip(&[main(), longer]), "is compressed"),
        ("no pickle", zip(&[data()]), "no entry `data.pkl`"),
        ("two pickles", zip(&[main(), twin, data()]), "several entries `data.pkl`"),
        ("big-endian numbers", zip(&other_order), "not little-endian"),
        ("no storage", zip(&[main()]), "its storage `0` is not in the file"),
    ] {
        let error = read(&bytes).expect_err(name);
        assert!(error.contains(fault), "{name}: {error}");
    }
    // The list has one entry within another.
    let inner = zip(&[entry("data/0", &[0; 16])]);
    let outer = zip(&[main(), entry("data/1", &inner)]);
    let at = outer.windows(4).enumerate().filter(|(_, four)| four == b"PK\x03\x04").nth(2);
    let at = at.expect("a record within the entry").0 as u32;
    let overlapping = [main(), entry("data/1", &inner), Entry { at: Some(at), ..data() }];
    let error = read(&zip(&overlapping)).expect_err("entries overlap");
    assert!(error.contains("`archive/data/1` and `archive/data/0` overlap"), "{error}");
}
