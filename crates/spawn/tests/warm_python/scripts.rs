//! Scripts that print everything that they see and do. Each runs cold and warm, and must print the
//! same.

/// Name, options of the interpreter, script.
pub(crate) const SCRIPTS: &[(&str, &str, &str)] = &[
    ("sys", "", include_str!("python/sys.py")),
    ("sys -I", "-I", include_str!("python/sys.py")),
    ("sys -E", "-E", include_str!("python/sys.py")),
    ("sys -S", "-S", include_str!("python/sys.py")),
    ("sys -u", "-u", include_str!("python/sys.py")),
    ("sys -OO", "-OO", include_str!("python/sys.py")),
    ("sys -Xutf8", "-Xutf8", include_str!("python/sys.py")),
    ("sys -bb", "-bb", include_str!("python/sys.py")),
    ("sys -Werror", "-Werror", include_str!("python/sys.py")),
    ("process", "", include_str!("python/process.py")),
    (
        "input as text",
        "",
        "import sys\nprint(repr(sys.stdin.read()))",
    ),
    (
        "input as bytes",
        "",
        "import sys\nprint(sys.stdin.buffer.read(5), sys.stdin.buffer.read())",
    ),
    (
        "input line by line",
        "",
        "import sys\nfor line in sys.stdin: print(ascii(line))\nprint(input)\n",
    ),
    (
        "no input left",
        "",
        "print(input())\nprint(ascii(input()))\nprint(input())\nprint(input())\n",
    ),
    (
        "exception",
        "",
        "def f(x):\n    return g(x) + 1\ndef g(x):\n    return 1 / x\nprint('before')\nf(0)\n",
    ),
    (
        "chained",
        "",
        "try:\n    {}['a']\nexcept KeyError as e:\n    raise ValueError('no') from e\n",
    ),
    (
        "while handling",
        "",
        "try:\n    {}['a']\nexcept KeyError:\n    import nothing_of_this_name\n",
    ),
    (
        "recursion",
        "",
        "import sys\ndef f(n): return f(n + 1)\ntry: f(0)\nexcept RecursionError: print(sys.getrecursionlimit())\n",
    ),
    (
        "depth",
        "",
        "n = 0\ndef f():\n    global n\n    n += 1\n    f()\ntry: f()\nexcept RecursionError: print(n)\n",
    ),
    ("syntax", "", "print('never')\nif True\n    x = 1\n"),
    ("indentation", "", "def f():\n  a\n    b\n"),
    ("null byte", "", "print(1)\n\0\nprint(2)\n"),
    (
        "compiled with a warning",
        "",
        "x = 1\nprint(x is 1, '\\d')\n",
    ),
    ("assert", "", "assert 1 == 2, 'no'\n"),
    ("exit None", "", "import sys\nprint('a')\nsys.exit()\n"),
    ("exit 0", "", "import sys\nsys.exit(0)\n"),
    ("exit 7", "", "raise SystemExit(7)\n"),
    ("exit True", "", "raise SystemExit(True)\n"),
    ("exit -1", "", "raise SystemExit(-1)\n"),
    (
        "exit text",
        "",
        "import sys\nprint('out', end='')\nsys.exit('caf\u{e9} is closed')\n",
    ),
    ("exit tuple", "", "raise SystemExit(1, 2)\n"),
    (
        "exit in a class of one's own",
        "",
        "class E(SystemExit): pass\ne = E('x')\ne.code = 9\nraise e\n",
    ),
    (
        "_exit",
        "",
        "import os, sys\nprint('lost')\nsys.stderr.write('kept')\nos._exit(4)\n",
    ),
    ("interrupt", "", "raise KeyboardInterrupt\n"),
    (
        "interrupt signal",
        "",
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nimport time\ntime.sleep(20)\n",
    ),
    (
        "killed",
        "",
        "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n",
    ),
    (
        "hook",
        "",
        "import sys\nsys.excepthook = lambda t, v, b: print('hook', t.__name__, v)\n1 / 0\n",
    ),
    (
        "hook that exits",
        "",
        "import sys\nsys.excepthook = lambda *a: sys.exit(5)\n1 / 0\n",
    ),
    (
        "hook that fails",
        "",
        "import sys\ndef hook(*a): {}['b']\nsys.excepthook = hook\n1 / 0\n",
    ),
    (
        "atexit",
        "",
        "import atexit\n@atexit.register\ndef last():\n    print('last', '__file__' in globals(), __name__)\n@atexit.register\ndef wrong(): 1 / 0\nprint('first')\n",
    ),
    (
        "atexit after exit",
        "",
        "import atexit, sys\natexit.register(lambda: print('last', '__file__' in globals()))\nsys.exit(3)\n",
    ),
    (
        "atexit after exception",
        "",
        "import atexit, sys\natexit.register(lambda: print('last', hasattr(sys, 'last_value')))\n1 / 0\n",
    ),
    (
        "atexit that exits",
        "",
        "import atexit, sys\natexit.register(sys.exit, 9)\n",
    ),
    (
        "thread",
        "",
        "import threading\ngo = threading.Event()\ndef work():\n    go.wait()\n    print('thread', threading.current_thread() is threading.main_thread())\nt = threading.Thread(target=work)\nt.start()\nprint(threading.active_count(), threading.main_thread().native_id == __import__('os').getpid())\ngo.set()\n",
    ),
    (
        "daemon",
        "",
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\nprint('gone')\n",
    ),
    (
        "pool",
        "",
        "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(3) as pool: print(list(pool.map(abs, range(-9, 0))))\nThreadPoolExecutor(1).submit(print, 'late')\n",
    ),
    (
        "asyncio",
        "",
        "import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    p = await asyncio.create_subprocess_exec('/bin/echo', 'hi', stdout=-1)\n    return (await p.communicate())[0]\nprint(asyncio.run(f()))\n",
    ),
    (
        "subprocess",
        "",
        "import subprocess, sys\nprint(subprocess.run([sys.executable, '-c', 'import os; print(sorted(os.environ)); import sys; print(sys.stdin.read())'], capture_output=True, text=True))\n",
    ),
    (
        "system",
        "",
        "import os\nprint('before', flush=True)\nos.system('echo $QUERY_STRING; ls /proc/self/fd | wc -l; exit 3')\n",
    ),
    (
        "fork",
        "",
        "import os, sys\nprint('twice')\npid = os.fork()\nif pid == 0:\n    print('child')\n    sys.exit(3)\nprint(os.WEXITSTATUS(os.waitpid(pid, 0)[1]))\n",
    ),
    (
        "processes",
        "",
        "import multiprocessing as m\ndef f(x): return x * x\nif __name__ == '__main__':\n    with m.get_context('fork').Pool(2) as p: print(p.map(f, range(5)))\n    q = m.Queue()\n    p = m.Process(target=q.put, args=(__name__,))\n    p.start()\n    print(q.get())\n    p.join()\n",
    ),
    (
        "spawned processes",
        "",
        "import multiprocessing as m\ndef f(x): return x * x\nif __name__ == '__main__':\n    with m.get_context('spawn').Pool(1) as p: print(p.map(f, range(5)))\n",
    ),
    (
        "exec",
        "",
        "import os\nos.execl('/bin/sh', 'sh', '-c', 'env | sort; cat; ls /proc/$$/fd')\n",
    ),
    (
        "main",
        "",
        "import __main__, sys, pickle\nclass A: pass\nif __name__ == '__main__':\n    print(pickle.dumps(A(), 0), pickle.loads(pickle.dumps(A())).__class__ is __main__.A, sys.modules['__main__'].A is A)\n    print(sorted(globals()), __spec__, type(__loader__), __loader__.name, __builtins__, __doc__, __package__, list(globals())[:9])\n",
    ),
    (
        "docstring",
        "",
        "'the docs'\nfrom __future__ import annotations\nx: int = 1\nprint(__doc__, __annotations__)\n",
    ),
    (
        "inspect",
        "",
        "import inspect\ndef f():\n    return 1\nprint(inspect.getsource(f), inspect.stack()[0][1:4], len(inspect.stack()))\nimport sys\nprint(sys._getframe().f_back, f.__code__.co_filename)\n",
    ),
    (
        "warnings",
        "",
        "import warnings\nwarnings.warn('careful')\nwarnings.warn('old', DeprecationWarning)\ndef f(): warnings.warn('up', stacklevel=2)\nf()\nf()\n",
    ),
    (
        "deprecated",
        "-Wdefault",
        "import asyncore, sys\nprint('asyncore' in sys.modules)\n",
    ),
    (
        "deprecated module",
        "",
        "import cgi\nprint(cgi.parse_header('a; b=c'))\nform = cgi.FieldStorage(keep_blank_values=True)\n",
    ),
    (
        "logging",
        "",
        "import logging\nlogging.warning('to stderr')\nlogging.basicConfig(format='%(relativeCreated)d')\nr = logging.makeLogRecord({})\nprint(0 <= r.relativeCreated < 2000)\n",
    ),
    (
        "unflushed output",
        "",
        "import sys\nsys.stdout.write('x' * 100000)\nsys.stderr.write('no newline')\n",
    ),
    (
        "binary output",
        "",
        "import sys\nsys.stdout.buffer.write(b'caf\\xc3\\xa9')\nprint('late')\n",
    ),
    (
        "output replaced",
        "",
        "import sys, io\nsys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding='utf-16-le')\nprint('a')\n",
    ),
    (
        "output reopened",
        "",
        "import sys\nsys.stdout = open(1, 'w', encoding='latin-1', closefd=False)\nprint('b')\n",
    ),
    (
        "output detached",
        "",
        "import sys, io\nsys.stdout = io.TextIOWrapper(sys.stdout.detach(), encoding='utf-8')\nprint('c')\n",
    ),
    (
        "output closed",
        "",
        "import sys\nprint('a')\nsys.stdout.close()\n",
    ),
    (
        "output closed below",
        "",
        "import os\nprint('a')\nos.close(1)\n",
    ),
    (
        "output gone",
        "",
        "import os, sys\nr, w = os.pipe()\nos.close(r)\nos.dup2(w, 1)\nprint('a')\n",
    ),
    (
        "output gone, exit",
        "",
        "import os, sys\nr, w = os.pipe()\nos.close(r)\nos.dup2(w, 1)\nprint('a')\nsys.exit(3)\n",
    ),
    ("unencodable output", "", "print('\\udc80')\n"),
    (
        "open file",
        "",
        "f = open('/dev/stderr', 'w')\nf.write('written at the end')\n",
    ),
    (
        "open file elsewhere",
        "",
        "import sys, json\njson.keep = [open('/dev/stderr', 'w')]\njson.keep[0].write('written at the end')\n",
    ),
    (
        "destructor",
        "",
        "class D:\n    def __init__(self, n): self.n = n\n    def __del__(self): print('gone', self.n)\na, b = D('a'), D('b')\ndef f(): yield from ()\nexec('class E:\\n  def __del__(self): 1 / 0')\ne = E()\n",
    ),
    (
        "destructor of what others hold",
        "",
        "import json\nclass D:\n    def __del__(self): print('gone')\njson.JSONDecoder.keep = [D()]\n",
    ),
    (
        "generator that others hold",
        "",
        "import json\ndef g():\n    try: yield 1\n    finally: print('finally')\njson.JSONDecoder.keep = [g()]\nnext(json.JSONDecoder.keep[0])\n",
    ),
    (
        "destructor of what nobody lists",
        "",
        "import json\nclass D:\n    __slots__ = ()\n    def __del__(self): print('gone')\nd = D()\njson.JSONDecoder.keep = D()\n",
    ),
    (
        "destructor of a file",
        "",
        "import io\nclass F(io.FileIO):\n    def __del__(self): print('gone', self.closed)\nio.BytesIO.keep = F('/dev/null') if 0 else None\nf = F('/dev/null')\nl = [f]\nl.append(l)\n",
    ),
    (
        "destructor in a cycle",
        "",
        "class D:\n    def __del__(self): print('gone')\nd = D()\nd.d = d\nl = [d]\nl.append(l)\n",
    ),
    (
        "destructor that a class is given",
        "",
        "import argparse\nn = argparse.Namespace()\nargparse.Namespace.__del__ = lambda self: print('gone')\n",
    ),
    (
        "generator",
        "",
        "def g():\n    try: yield 1\n    finally: print('finally')\nit = g()\nnext(it)\n",
    ),
    (
        "finalizer",
        "",
        "import weakref\nclass A: pass\na = A()\nweakref.finalize(a, print, 'finalized')\n",
    ),
    (
        "temporary file",
        "",
        "import tempfile, os\nf = tempfile.NamedTemporaryFile()\nd = tempfile.TemporaryDirectory()\nprint(os.path.exists(f.name))\n",
    ),
    (
        "garbage collection",
        "",
        "import gc\nprint(gc.isenabled(), gc.get_threshold(), gc.garbage)\n",
    ),
    (
        "locale",
        "",
        "import locale, time\nprint(locale.setlocale(locale.LC_ALL), locale.getpreferredencoding(False), time.tzname)\n",
    ),
    (
        "help",
        "",
        "import site, builtins\nprint(exit, quit, builtins.copyright.__class__, site.ENABLE_USER_SITE)\nexit(6)\n",
    ),
    ("future", "", "from __future__ import nothing\n"),
    (
        "code of its own",
        "",
        "exec(compile('def f(): return 1 / 0', '<made>', 'exec'))\nf()\n",
    ),
    (
        "trace",
        "",
        "import sys\nsys.settrace(lambda f, e, a: None)\nsys.setprofile(None)\ndef f(): pass\nf()\nprint(sys.gettrace() is not None)\n",
    ),
    (
        "group",
        "",
        "try: raise ExceptionGroup('two', [ValueError(1), TypeError(2)])\nexcept NameError: print('old')\n",
    ),
    (
        "unraisable",
        "",
        "import sys\nclass A:\n    def __del__(self): raise ValueError('x')\nA()\nprint('on')\n",
    ),
    (
        "faulthandler",
        "-Xfaulthandler",
        "import faulthandler\nprint(faulthandler.is_enabled())\n",
    ),
    (
        "unclosed file",
        "-Wdefault",
        "f = open('/dev/null')
",
    ),
    (
        "sqlite",
        "",
        "import sqlite3\ndb = sqlite3.connect(':memory:')\nprint(db.execute('select 1').fetchall())\n",
    ),
    (
        "path",
        "",
        "import sys, os\nprint(sys.path, os.getcwd(), sys.argv, __file__)\n",
    ),
];
