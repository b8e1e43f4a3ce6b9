import hashlib
import os
from wsgiref.handlers import CGIHandler

from flask import Flask, redirect, request, session, url_for

app = Flask(__name__)
app.secret_key = "for this test only"


@app.get("/")
def home():
    return "home"


@app.get("/where/<path:rest>")
def where(rest):
    said = {
        "script_root": request.root_path,
        "path": request.path,
        "url_for": url_for("hello", name="Ada L"),
        "url": request.url,
        "remote": request.remote_addr,
    }
    return "".join(f"{name}={value}\n" for name, value in said.items())


@app.get("/hello/<name>")
def hello(name):
    return f"Hello, {name}!"


@app.get("/grüße")
def grüße():
    return f"Grüße an {request.args['an']}"


@app.get("/stream")
def stream():
    def parts():
        yield "first\n"
        with open("../go-on") as go_on:
            yield go_on.read()
        yield "last\n"

    return parts(), {"Content-Type": "text/plain"}


@app.post("/upload")
def upload():
    file = request.files["file"]
    data = file.read()
    return f"{file.filename} {len(data)} {hashlib.sha256(data).hexdigest()} {request.form['title']}"


@app.post("/login")
def login():
    session["name"] = request.form["name"]
    response = redirect(url_for("me"), 303)
    response.set_cookie("theme", "dark")
    return response


@app.get("/me")
def me():
    return f"{session['name']}, {request.cookies['theme']}"


@app.get("/broken")
def broken():
    return str(1 // 0)


CGIHandler().run(app)
