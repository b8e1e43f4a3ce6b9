import builtins
import os
import sys

for name in sorted(vars(sys)):
    value = getattr(sys, name)
    if name in ("modules", "path_importer_cache", "_git", "meta_path", "path_hooks", "__doc__", "builtin_module_names", "stdlib_module_names", "copyright"):
        continue
    if callable(value) or isinstance(value, dict):
        continue
    print(name, value if "at 0x" not in repr(value) else type(value))
for name in "stdin", "stdout", "stderr":
    text = getattr(sys, name)
    buffer = text.buffer
    raw = getattr(buffer, "raw", buffer)
    print(
        name, text, text.encoding, text.errors, text.line_buffering, text.write_through, text.newlines, text.mode,
        text.name, text.seekable(), text.isatty(), text.readable(), text.writable(), text.fileno(), text._CHUNK_SIZE,
        buffer, raw, raw.name, raw.mode, raw.closefd, raw.seekable(), raw._blksize, vars(text), vars(raw),
        text is getattr(sys, "__%s__" % name), buffer.closed,
    )
print(sys._xoptions, sys.warnoptions, sys.getfilesystemencoding(), sys.getdefaultencoding(), sys.getrecursionlimit())
print(sys.getswitchinterval(), sys.getdlopenflags(), sys.gettrace(), sys.getprofile(), sys.is_finalizing())
print(os.environ, os.environb, os.getcwd(), dict(vars(builtins))["__name__"], os.environ._data is __import__("posix").environ)
print(sys.meta_path, [getattr(hook, "__name__", hook) if "at 0x" in repr(hook) else hook for hook in sys.path_hooks])
print([name for name in globals() if name.startswith("__")])
