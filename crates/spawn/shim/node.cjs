// Run ahead of the script in a Node template or a parked process, with the functions of node.c.
(function (require, module, galgo) {
  "use strict";
  const LEARN = 1;
  const REHEARSALS = galgo.forks ? 4 : 1; // once saves a request more than it costs each process
  const TRIED = 24; // the last version whose threads, memory and way of loading are known
  const Module = require("module");
  const fs = require("fs");
  const path = require("path");
  const v8 = require("v8");
  const main = process.argv[1];

  // Nothing of this is to be seen by the script.
  process.execArgv.splice(0, galgo.options);
  // Another array: Node goes on with this one.
  const modules = process._preload_modules.filter((name) => name !== "/proc/self/environ");
  Object.defineProperty(process, "_preload_modules", { value: modules });
  delete Module._cache[module.filename];
  const hide = (object, name, value) =>
    Object.defineProperty(object, name, { value, enumerable: false, writable: true, configurable: true });

  // ---- modules that earlier children loaded ----
  // Builtin ones, and packages: what lies in node_modules is written to be loaded by any program,
  // the script's own files may look at the request.
  const inPackage = (file) => file.includes("/node_modules/");
  const random = fresh();
  let obstacle = "";
  let known;

  // Numbers that are drawn before the fork would be the same in all children. Math.random is
  // replaced by one of our own meanwhile, which children seed again.
  function fresh() {
    const state = new BigUint64Array(2);
    let drawn = false;
    return {
      random() {
        drawn = true;
        let [a, b] = state;
        if (!(a | b)) [a, b] = seed();
        a ^= a << 23n;
        a = BigInt.asUintN(64, a);
        state[0] = b;
        state[1] = a ^ b ^ (a >> 17n) ^ (b >> 26n);
        return Number(BigInt.asUintN(53, state[1] + b)) / 2 ** 53;
      },
      reseed() {
        if (drawn) state.set(seed());
      },
    };
    function seed() {
      return new BigUint64Array(galgo.entropy(16));
    }
  }

  function load(names) {
    const held = galgo.held();
    for (const name of names.filter((n) => !inPackage(n))) quietly(() => require(name));
    // In a parked process nothing of the program is run, however it is written.
    const packages = names.filter((name) => galgo.forks && inPackage(name));
    if (!packages.length) return;
    const restore = watch();
    for (const name of packages) {
      quietly(() => require(name));
      const now = galgo.held();
      if ((now & 0xffff) > (held & 0xffff)) blame(`starts a thread while loading ${name}`);
      else if (now >>> 16 > held >>> 16) blame(`opens a descriptor while loading ${name}`);
    }
    restore();
  }

  // ---- what each child would do first ----
  // A function is compiled when it is called first, a pattern when it is matched first and again when
  // it is matched more often; Node's own functions, too.
  function rehearse(names) {
    const script = new Module(main);
    script.filename = resolved();
    script.paths = Module._nodeModulePaths(path.dirname(script.filename));
    const packages = new Set(names.map((name) => /^.*\/node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(name)?.[1]));
    const found = new Set(Object.keys(Module._pathCache));
    for (let times = 0; times < REHEARSALS; times++) {
      for (const name of packages) if (name) quietly(() => Module._resolveFilename(name, script));
      // Where they are found is not kept: the script looks for itself.
      for (const key in Module._pathCache) if (!found.has(key)) delete Module._pathCache[key];
      quietly(useFiles);
      hide({}, "name");
      random.reseed();
      process.exitCode; // a getter
    }
  }

  function useFiles() {
    const file = fs.openSync("/dev/null", "r+");
    fs.writeSync(file, "");
    fs.readSync(file, Buffer.alloc(1));
    fs.writeFileSync(file, "");
    fs.readFileSync(file, "utf8");
    fs.closeSync(file);
  }

  // What process.stdin and process.stdout are made of, around nothing. Those themselves belong to a request.
  function useStreams() {
    const names = ["getAsyncId", "readStart", "readStop", "ref", "unref", "close", "shutdown", "writev"];
    names.push("writeBuffer", "writeUtf8String", "writeLatin1String");
    const handle = Object.fromEntries(names.map((name) => [name, () => 0]));
    const { Socket } = require("net");
    const output = new Socket({ handle, readable: false });
    new console.Console(output).log("%s", "text", { list: [1] });
    const input = new Socket({ handle, writable: false });
    input.setEncoding("utf8").on("data", output.write.bind(output)).on("end", () => output.end());
    input.push("text");
    input.push(null);
    process._tickCallback(); // nothing else has been put off yet
  }

  // A child begins with no young objects: it would copy those of the template before its own are many.
  function promote() {
    v8.setFlagsFromString("--expose-gc");
    const collect = require("vm").runInNewContext("gc");
    v8.setFlagsFromString("--no-expose-gc");
    for (let times = 0; times < 2; times++) collect({ type: "minor" });
  }

  // What cannot be done ahead the script does, and says so where it fails.
  function quietly(action) {
    try {
      action();
    } catch {}
  }

  // The package.json that decide what is found where.
  function packages(files) {
    const folders = new Set(files.filter(inPackage).map((file) => path.dirname(file)));
    for (const folder of folders) if (!folder.endsWith("/node_modules")) folders.add(path.dirname(folder));
    return [...folders].map((folder) => path.join(folder, "package.json")).filter((file) => fs.existsSync(file));
  }

  function resolved() {
    try {
      return fs.realpathSync(main);
    } catch {
      return main;
    }
  }

  function blame(words) {
    obstacle ||= words;
  }

  function replace(object, name, descriptor) {
    const old = Object.getOwnPropertyDescriptor(object, name);
    if (!old) return () => {};
    Object.defineProperty(object, name, { ...descriptor(old, name), enumerable: old.enumerable, configurable: true });
    return () => Object.defineProperty(object, name, old);
  }

  // What a package must not do ahead of a request: draw random numbers, look at the standard
  // streams and at variables, which are others then.
  function watch() {
    const undo = [];
    const put = (...rest) => undo.push(replace(...rest));
    put(Math, "random", () => ({ value: random.random, writable: true }));
    const crypto = require("crypto");
    const draws = ["randomBytes", "pseudoRandomBytes", "prng", "rng", "randomFillSync", "randomFill", "randomInt", "randomUUID"];
    for (const name of draws) put(crypto, name, drawing);
    // crypto.getRandomValues and the global `crypto` come to it.
    for (const name of ["getRandomValues", "randomUUID"]) put(Object.getPrototypeOf(crypto.webcrypto ?? {}), name, drawing);
    function drawing({ value: original }, name) {
      const value = function (...rest) {
        blame(`draws random numbers (crypto.${name}) while loading its modules`);
        return original.apply(this, rest);
      };
      return { value, writable: true };
    }
    for (const [fd, name] of ["stdin", "stdout", "stderr"].entries()) {
      put(process, name, (old) => ({ get: () => new Stream(fd, name, old) }));
    }
    const { env } = process;
    let early = true;
    put(process, "env", () => ({ value: environment(env, () => early), writable: true }));
    return () => {
      early = false;
      undo.forEach((back) => back());
      if (Stream.shown && streamsKept() > 0) blame("keeps a standard stream while loading its modules");
    };
  }

  // In place of a standard stream: its number is the same for all requests, and none is a terminal.
  class Stream {
    static shown = false;
    fd; // its own: what is not is asked of the prototype
    #name;
    #old;
    constructor(fd, name, old) {
      this.fd = fd;
      this.#name = name;
      this.#old = old;
      Stream.shown = true;
    }
    static #used(it) {
      blame(`uses process.${it.#name} while loading its modules`);
      return it.#old.get.call(process);
    }
    static {
      const rest = {
        get(_, key, it) {
          const stream = Stream.#used(it);
          return typeof stream[key] === "function" ? stream[key].bind(stream) : stream[key];
        },
        set(_, key, value, it) {
          Stream.#used(it)[key] = value;
          return true;
        },
        has: () => blame("uses a standard stream while loading its modules"),
      };
      delete Stream.prototype.constructor;
      Object.setPrototypeOf(Stream.prototype, new Proxy({}, rest));
    }
  }

  // Node says that it may change; where it is not, some may be.
  function streamsKept() {
    const restore = replace(process, "emitWarning", () => ({ value() {}, writable: true }));
    const count = v8.queryObjects?.(Stream) ?? 1;
    restore();
    return count;
  }

  // A request's variables are not there yet. Names alone may be listed, as for what begins with DEBUG_: those are among
  // them that a request has, and who finds one that it looks for asks for its value. A package may keep this; later it is
  // what it stands for.
  function environment(real, early) {
    const OF_REQUEST =
      /^(HTTP_(?!PROXY$).*|AUTH_TYPE|CONTENT_(LENGTH|TYPE)|DOCUMENT_ROOT|HTTPS|PATH_(INFO|TRANSLATED)|QUERY_STRING|REDIRECT_URL|REMOTE_(ADDR|HOST|IDENT|PORT|USER)|REQUEST_(METHOD|SCHEME|URI)|SCRIPT_(FILENAME|NAME)|SERVER_(ADDR|NAME|PORT|PROTOCOL)|SSL_(CIPHER|PROTOCOL|SERVER_NAME|CLIENT_([IS]_DN|S_DN_CN|M_SERIAL|VERIFY|V_START|V_END))|UNIQUE_ID)$/;
    const LISTED = ["CONTENT_TYPE", "HTTP_HOST", "PATH_INFO", "QUERY_STRING", "REMOTE_ADDR", "REQUEST_METHOD", "SCRIPT_NAME", "SERVER_NAME"];
    const missed = (name) => early() && typeof name === "string" && !(name in real) && OF_REQUEST.test(name);
    const asked = (name) => missed(name) && blame(`reads ${name} while loading its modules`);
    return new Proxy(real, {
      get(_, name) {
        asked(name);
        return real[name];
      },
      has(_, name) {
        asked(name);
        return name in real;
      },
      set(_, name, value) {
        if (early()) blame("changes its environment while loading its modules");
        real[name] = value;
        return true;
      },
      deleteProperty(_, name) {
        // One that no request has and that is not there: nothing changes.
        if (early() && (name in real || missed(name))) blame("changes its environment while loading its modules");
        return delete real[name];
      },
      ownKeys: () => [...new Set([...Reflect.ownKeys(real), ...(early() ? LISTED : [])])],
      getOwnPropertyDescriptor(_, name) {
        const there = Object.getOwnPropertyDescriptor(real, name);
        return there || !missed(name) ? there : { value: "", writable: true, enumerable: true, configurable: true };
      },
    });
  }

  function preloadReport() {
    const builtin = process.moduleLoadList
      .filter((name) => name.startsWith("NativeModule ") && !known.has(name))
      .map((name) => name.slice("NativeModule ".length))
      .filter((name) => Module.builtinModules.includes(name));
    return [...new Set(builtin), ...Object.keys(Module._cache).filter((file) => inPackage(file) && !known.has(file))].join("\n");
  }

  // ---- where it stops ----
  // A CommonJS script is read and compiled first: path.dirname is what Module._compile calls next.
  // Anything else stops here, before it is looked at: a module is fetched with promises.
  function compiles() {
    const options = [...process.execArgv, process.env.NODE_OPTIONS];
    const loads = options.some((option) => /--(import|loader|experimental-(loader|default-type))\b/.test(option));
    if (!galgo.forks || version > TRIED || loads) return false;
    try {
      const file = fs.realpathSync(main);
      if (file.endsWith(".mjs") || (!file.endsWith(".cjs") && packageType(file) === "module")) return false;
      const params = ["exports", "require", "module", "__filename", "__dirname"];
      require("vm").compileFunction(fs.readFileSync(file, "utf8").replace(/^\uFEFF/, ""), params, { filename: file });
      return true;
    } catch {
      return false;
    }
  }

  function packageType(file) {
    for (let folder = path.dirname(file); ; folder = path.dirname(folder)) {
      try {
        return JSON.parse(fs.readFileSync(path.join(folder, "package.json"), "utf8")).type;
      } catch (error) {
        if (error.code !== "ENOENT") return "module";
      }
      if (folder === path.dirname(folder)) return undefined;
    }
  }

  function seedEngine() {
    v8.setFlagsFromString(`--random-seed=${new Int32Array(galgo.entropy(4))[0] || 1}`);
    for (let n = new Uint8Array(galgo.entropy(1))[0]; n >= 0; n--) Math.random();
    v8.setFlagsFromString("--random-seed=0");
  }

  function stop() {
    const loaded = Object.keys(Module._cache).filter((file) => file.startsWith("/"));
    known = new Set(process.moduleLoadList.concat(Object.keys(Module._cache)));
    const files = [...loaded, ...packages(loaded), main, resolved()];
    if (galgo.forks) promote();
    // Where packages are looked for, and what needs no file.
    const search = [...Module._nodeModulePaths(path.dirname(resolved())), ...Module.globalPaths, ...Module.builtinModules];
    const learn = galgo.stop(files.join("\n"), obstacle, search.filter((line) => !line.includes("\n")).join("\n"));
    Object.defineProperty(process, "pid", { value: galgo.pid() });
    hide(process, "emit", galgo.emitter(process.emit));
    process.reallyExit = galgo.reallyExit;
    random.reseed();
    if (galgo.forks) seedEngine();
    if (process.env.TZ !== zone) process.env.TZ = process.env.TZ;
    if (learn & LEARN) galgo.teach(preloadReport);
  }

  const version = Number(process.versions.node.split(".")[0]);
  if (galgo.forks && version > TRIED) blame(`is run by Node ${version}, of which is not known whether it can be forked: Node ${TRIED} can`);
  const names = galgo.modules().split("\n").filter(Boolean);
  if (galgo.forks) v8.setFlagsFromString("--no-lazy");
  if (names.includes("net")) {
    const restore = replace(process, "stderr", () => ({ value: {} })); // looked at for its colours
    for (let times = 0; times < REHEARSALS; times++) quietly(useStreams);
    restore();
  }
  load(names);
  rehearse(names);
  const zone = process.env.TZ;
  if (!compiles()) {
    if (galgo.forks) v8.setFlagsFromString("--lazy");
    return stop();
  }
  const dirname = path.dirname;
  path.dirname = function (name) {
    if (/^\s+at Module\._compile \(node:internal/m.test(new Error().stack.split("\n")[2])) {
      path.dirname = dirname;
      v8.setFlagsFromString("--lazy");
      stop();
    }
    return dirname(name);
  };
});
