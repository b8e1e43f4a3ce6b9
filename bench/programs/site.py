#!/usr/bin/env python3
"""A small site in Flask: some pages, a template, a form, a cookie."""

from wsgiref.handlers import CGIHandler

from flask import Flask, redirect, render_template_string, request, url_for

app = Flask(__name__)

PAGE = """<!DOCTYPE html>
<html lang="en"><title>{{ title }}</title>
<nav><a href="{{ url_for('home') }}">Home</a> <a href="{{ url_for('listing') }}">List</a></nav>
<h1>{{ title }}</h1>
{% if entries %}<ol>{% for entry in entries %}<li>{{ entry }} of {{ entries|length }}</li>{% endfor %}</ol>
{% else %}<form method="post" action="{{ url_for('sign') }}"><input name="name"></form>{% endif %}
</html>
"""


@app.get("/")
def home():
    name = request.cookies.get("name", "stranger")
    return render_template_string(PAGE, title=f"Hello, {name}!")


@app.get("/list")
def listing():
    entries = [f"entry {n}" for n in range(20)]
    return render_template_string(PAGE, title="A list", entries=entries)


@app.post("/sign")
def sign():
    answer = redirect(url_for("home"), 303)
    answer.set_cookie("name", request.form["name"])
    return answer


if __name__ == "__main__":
    CGIHandler().run(app)
