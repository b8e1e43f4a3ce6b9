//! Scripts that must not be able to tell in which way they were started.

/// Name (its extension tells the kind of module), and the script below its first line.
pub(crate) const ALIKE: &[(&str, &str)] = &[
    (
        "argv.js",
        "console.log(process.argv, process.argv0, process.execArgv, process.execPath, process.title, __filename, __dirname, require.main === module, module.children.length, Object.keys(require.cache), process._preload_modules, module.paths[0])",
    ),
    (
        "cmdline.js",
        "const fs = require('fs'); console.log(fs.readFileSync('/proc/self/cmdline', 'utf8').split('\\0'), fs.readlinkSync('/proc/self/exe'), fs.readFileSync('/proc/self/comm', 'utf8'))",
    ),
    (
        "title.js",
        "process.title = 'short'; console.log(process.title, require('fs').readFileSync('/proc/self/cmdline', 'utf8').replace(/\\0.*/s, ''))",
    ),
    (
        "env.js",
        "console.log({ ...process.env }, 'QUERY_STRING' in process.env, process.env.GALGO_TEMPLATE); process.env.NEW = '1'; delete process.env.PATH; console.log(require('child_process').execFileSync('/usr/bin/env', { encoding: 'utf8' }))",
    ),
    (
        "globals.js",
        "console.log(Object.getOwnPropertyNames(globalThis).sort().join(), Object.keys(process).sort().join(), process.listeners('exit').length, process.eventNames(), process.emit.name, typeof galgo)",
    ),
    (
        "cwd.js",
        "console.log(process.cwd(), process.umask().toString(8), process.getuid(), process.pid === Number(require('fs').readlinkSync('/proc/self')), process.ppid > 0)",
    ),
    (
        "builtin.js",
        "const m = require('module'); console.log(m.builtinModules.join(), JSON.stringify(process.versions), process.release.name, process.config.variables.v8_enable_i18n_support, JSON.stringify(process.features))",
    ),
    (
        "stdin.js",
        "let body = ''; process.stdin.setEncoding('utf8').on('data', (d) => (body += d)).on('end', () => console.log('got', body.length, body.slice(0, 9)))",
    ),
    (
        "stdinsync.js",
        "console.log(require('fs').readFileSync(0, 'utf8').length)",
    ),
    (
        "stdiniter.mjs",
        "let n = 0; for await (const chunk of process.stdin) n += chunk.length; console.log(n)",
    ),
    (
        "readline.js",
        "const r = require('readline').createInterface({ input: process.stdin }); r.on('line', (l) => console.log('line', l)).on('close', () => console.log('closed'))",
    ),
    (
        "streams.js",
        "console.log(process.stdout.constructor.name, process.stdin.constructor.name, process.stderr.constructor.name, process.stdout.isTTY, process.stdout._type, process.stdout.writableHighWaterMark)",
    ),
    (
        "large.js",
        "process.stdout.write('x'.repeat(3000000), () => process.stdout.write('end\\n'))",
    ),
    (
        "large_exit.js",
        "process.stderr.write('e'.repeat(30000)); process.stdout.write('x'.repeat(60000)); process.exit(4)",
    ),
    (
        "sync.js",
        "const fs = require('fs'); fs.writeSync(1, 'a'); process.stdout.write('b'); fs.writeSync(1, 'c'); console.error('d')",
    ),
    (
        "exit.js",
        "process.on('exit', (c) => console.log('exit', c, new Error('x').stack)); process.on('beforeExit', (c) => console.log('before', c, new Error('x').stack)); process.exitCode = 9",
    ),
    (
        "exit_in_exit.js",
        "process.on('exit', (c) => { process.exitCode = 5 }); setTimeout(() => {}, 2)",
    ),
    (
        "exit_now.js",
        "process.on('exit', (c) => { console.log('exit', c); process.exit(6) }); process.exit(2)",
    ),
    (
        "emit.js",
        "process.on('x', (a, b) => console.log(a, b, new Error('x').stack)); console.log(process.emit('x', 1, 2), process.emit('y'), process.emit('exit', 3)); setTimeout(() => console.log('still here'), 5)",
    ),
    (
        "throw.js",
        "function f() { throw new TypeError('no\\nway') }\nf()",
    ),
    (
        "throw_late.js",
        "setTimeout(() => { null.x }, 1); setTimeout(() => console.log('never'), 100)",
    ),
    ("throw_string.js", "throw 'plain'"),
    (
        "throw_exit.js",
        "process.on('exit', (c) => console.log('exit', c)); throw new Error('x')",
    ),
    (
        "caught.js",
        "process.on('uncaughtException', (e, o) => { console.log(e.message, o, new Error('y').stack); process.exit(3) }); setTimeout(() => { throw new Error('x') })",
    ),
    ("reject.js", "Promise.reject(new Error('r'))"),
    ("reject_value.js", "Promise.reject(42)"),
    (
        "reject_handled.js",
        "process.on('unhandledRejection', (e) => console.log('seen', e.message)); Promise.reject(new Error('r'))",
    ),
    ("syntax.js", "const a = ;"),
    ("missing.js", "require('./nothing')"),
    (
        "warning.js",
        "process.emitWarning('careful'); new Buffer(3)",
    ),
    (
        "abort.js",
        "require('fs').writeSync(1, 'before\\n'); process.abort()",
    ),
    (
        "kill.js",
        "process.kill(process.pid, 'SIGTERM'); setTimeout(() => {}, 1000)",
    ),
    (
        "signal.js",
        "process.on('SIGUSR2', (s, n) => { console.log(s, n, new Error('x').stack); clearInterval(t) }); const t = setInterval(() => {}, 1000); process.kill(process.pid, 'SIGUSR2')",
    ),
    (
        "sigpipe.js",
        "process.on('SIGTERM', () => { console.log('term'); process.exit(7) }); process.kill(process.pid, 'SIGTERM'); setTimeout(() => {}, 1000)",
    ),
    (
        "status.js",
        "console.log(require('fs').readFileSync('/proc/self/status', 'utf8').split('\\n').filter((l) => /^(Sig[BIC]|ShdPnd|SigPnd|NoNewPrivs|Umask|Groups|CapEff|Seccomp:)/.test(l)))",
    ),
    (
        "fs_async.js",
        "const fs = require('fs'); let n = 20; for (let i = 0; i < 20; i++) fs.readFile('/etc/passwd', 'utf8', (e, d) => { if (!--n) console.log(d.length, e) })",
    ),
    (
        "fs_promises.mjs",
        "import fs from 'node:fs/promises'; const all = await Promise.all([1, 2, 3].map(() => fs.readFile('/etc/passwd'))); console.log(all.map((b) => b.length)); const d = await fs.mkdtemp('/tmp/x-'); await fs.rmdir(d); console.log((await fs.readdir('/etc')).length)",
    ),
    (
        "watch.js",
        "const fs = require('fs'), d = fs.mkdtempSync('/tmp/w-'); const w = fs.watch(d, (t, f) => { console.log(t, f); w.close(); fs.rmSync(d, { recursive: true }) }); fs.writeFileSync(d + '/a', '')",
    ),
    (
        "timers.js",
        "const l = []; setImmediate(() => { l.push('immediate'); setTimeout(() => { l.push('timeout'); console.log(l) }, 20) }); process.nextTick(() => l.push('tick')); Promise.resolve().then(() => l.push('micro'))",
    ),
    (
        "spawn.js",
        "const cp = require('child_process'); console.log(cp.execSync('echo $0 a; exit 0', { encoding: 'utf8' }), cp.spawnSync('sh', ['-c', 'kill -9 $$']).signal); cp.spawn('cat', { stdio: [0, 1, 2] }).on('exit', (c, s) => console.log('cat', c, s))",
    ),
    (
        "fork.js",
        "if (process.argv[2]) { process.send(process.execArgv); process.disconnect() } else require('child_process').fork(__filename, ['x']).on('message', (m) => console.log('message', m)).on('exit', (c) => console.log('forked', c))",
    ),
    (
        "exec.js",
        "require('child_process').exec('cat; echo err >&2; exit 3', (e, out, err) => console.log(e.code, out, err)).stdin.end('in')",
    ),
    (
        "worker.js",
        "const { Worker, isMainThread, parentPort, threadId } = require('worker_threads'); if (isMainThread) { const w = new Worker(__filename); w.on('message', (m) => console.log('from worker', m)).on('exit', (c) => console.log('worker', c)) } else { let s = 0; for (let i = 0; i < 1e6; i++) s += i; parentPort.postMessage([s, threadId, process.execArgv]); setTimeout(() => {}, 5) }",
    ),
    (
        "worker_exit.js",
        "const { Worker } = require('worker_threads'); new Worker('setInterval(() => {}, 10)', { eval: true }).on('online', () => process.exit(3))",
    ),
    (
        "http.js",
        "const http = require('http'); const s = http.createServer((q, r) => r.end('hello ' + q.url)).listen(0, '127.0.0.1', () => http.get({ port: s.address().port, path: '/p', agent: false }, (r) => r.on('data', (d) => console.log(r.statusCode, String(d))).on('end', () => s.close())))",
    ),
    (
        "fetch.mjs",
        "import http from 'node:http'; const s = http.createServer((q, r) => r.end('hi')).listen(0, '127.0.0.1', async () => { console.log(await (await fetch(`http://127.0.0.1:${s.address().port}/`)).text()); s.close(); s.closeAllConnections() })",
    ),
    (
        "net.js",
        "const net = require('net'); const s = net.createServer((c) => c.end('bye')).listen(0, () => net.connect(s.address().port).on('data', (d) => console.log(String(d))).on('close', () => s.close()))",
    ),
    (
        "dns.js",
        "require('dns').lookup('localhost', { family: 4 }, (e, a) => console.log(e, a))",
    ),
    (
        "tls.js",
        "const c = require('crypto'); const { publicKey, privateKey } = c.generateKeyPairSync('ec', { namedCurve: 'P-256' }); console.log(c.verify('sha256', 'x', publicKey, c.sign('sha256', 'x', privateKey)), c.createHash('sha256').update('a').digest('hex'), require('tls').rootCertificates.length)",
    ),
    (
        "pbkdf2.js",
        "require('crypto').pbkdf2('a', 'b', 1000, 16, 'sha1', (e, k) => console.log(k.toString('hex')))",
    ),
    (
        "zlib.js",
        "require('zlib').gzip('x'.repeat(1e5), (e, b) => console.log(require('zlib').gunzipSync(b).length))",
    ),
    (
        "subtle.mjs",
        "console.log(Buffer.from(await crypto.subtle.digest('SHA-256', new TextEncoder().encode('a'))).toString('hex'))",
    ),
    (
        "wasm.js",
        "const b = new Uint8Array([0,97,115,109,1,0,0,0,1,7,1,96,2,127,127,1,127,3,2,1,0,7,7,1,3,97,100,100,0,0,10,9,1,7,0,32,0,32,1,106,11]); console.log(new WebAssembly.Instance(new WebAssembly.Module(b)).exports.add(2, 3)); WebAssembly.instantiate(b).then(({ instance }) => { let s = 0; for (let i = 0; i < 1e6; i++) s = instance.exports.add(s, i); console.log(s) })",
    ),
    (
        "jit.js",
        "function f(n) { return n < 2 ? n : f(n - 1) + f(n - 2) } console.log(f(27)); let s = 0; for (let i = 0; i < 3e6; i++) s += Math.sqrt(i); console.log(s)",
    ),
    (
        "gc.js",
        "let keep = []; for (let i = 0; i < 3e5; i++) { keep.push({ i, s: 'x' + i }); if (keep.length > 1e5) keep = [] } console.log(keep.length, Buffer.alloc(5e7).length)",
    ),
    (
        "weak.js",
        "new FinalizationRegistry(() => {}).register({}, 1); console.log(new WeakRef({}).deref() !== undefined)",
    ),
    (
        "atomics.js",
        "console.log(Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5)); const c = new MessageChannel(); c.port1.on('message', (m) => { console.log(m); c.port1.close() }); c.port2.postMessage('m')",
    ),
    (
        "vm.js",
        "console.log(require('vm').runInNewContext('a + 1', { a: 2 }), eval('1+1'), new Function('return 3')())",
    ),
    (
        "intl.js",
        "console.log(new Date(0).toString(), new Intl.DateTimeFormat().resolvedOptions().timeZone, (1234.5).toLocaleString(), new Date(0).toLocaleString())",
    ),
    (
        "stack.js",
        "console.log(new Error('here').stack); console.trace('t'); function deep(n) { try { return deep(n + 1) } catch { return n } } console.log(deep(0) > 5000); console.log(Error.stackTraceLimit)",
    ),
    ("return.js", "console.log('a'); return; console.log('b')"),
    (
        "strict.js",
        "'use strict'; console.log(this === exports, (function () { return this })())",
    ),
    (
        "text.js",
        "console.log(((a, b) => a /* kept */ + b).toString(), require('path').dirname.toString().length, Math.random.toString(), require('path').dirname('/a/b'), path_is_plain = Object.getOwnPropertyDescriptor(require('path'), 'dirname').writable)",
    ),
    (
        "fds.js",
        "const fs = require('fs'); console.log(fs.readdirSync('/proc/self/fd').filter((n) => { try { return n !== '100' && /socket|memfd/.test(fs.readlinkSync('/proc/self/fd/' + n)) } catch { return false } }))",
    ),
    (
        "esm.mjs",
        "import { createRequire } from 'node:module'; console.log(import.meta.url.slice(-8), process.argv.length, typeof require, createRequire(import.meta.url)('path').sep)",
    ),
    ("esm_throw.mjs", "throw new Error('esm')"),
    ("tla.mjs", "await new Promise(() => {})"),
    (
        "dynamic.js",
        "import('node:fs').then((m) => console.log(typeof m.readFile))",
    ),
    (
        "als.js",
        "const { AsyncLocalStorage } = require('async_hooks'); const s = new AsyncLocalStorage(); s.run(7, () => setTimeout(() => console.log(s.getStore()), 1))",
    ),
    (
        "events.js",
        "const { once, EventEmitter } = require('events'); const e = new EventEmitter(); once(e, 'a').then((v) => console.log(v)); e.emit('a', 1); e.emit('error', new Error('unheard'))",
    ),
    (
        "uptime.js",
        "console.log(process.uptime() < 20 && process.uptime() > 0, performance.now() > 0, Math.abs(performance.timeOrigin + performance.now() - Date.now()) < 1000, process.hrtime().length, typeof process.hrtime.bigint(), process.cpuUsage().user >= 0, process.memoryUsage().rss > 0, process.resourceUsage().maxRSS > 0)",
    ),
    (
        "async_exit.mjs",
        "process.on('exit', (c) => console.log('bye', c)); await new Promise((r) => setTimeout(r, 3)); process.exitCode = 12",
    ),
];
