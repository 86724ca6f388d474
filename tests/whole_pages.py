"""Whole pages with all that a translation must leave as it is."""

BODY = """
<header class='top' id=main><h1>A  red house&nbsp;&mdash; &copy; 2024</h1>
<!-- a comment --><!--[if lt IE 9]><script src="old.js"></script><![endif]--><![if !IE]><p>Not there</p><![endif]>
</header>
<p>One <b>very <i>red</i></b> house,<br/>two dogs<br />and <a href="x?a=1&amp;b=2" title='A "long" walk'>three
   cats</a>. It&#39;s AT&T &amp; more &lt;here&gt; > there.</p>
<P CLASS=Big>Upper case <B>tags</B> <IMG SRC="dog.png" ALT="A red dog"></P>
<p>20 m<sup>2</sup> of H<sub>2</sub>O, dogs<sup>1</sup> and CO<sub>2</sub>. Press <kbd>Ctrl</kbd>+<kbd>C</kbd> or
<code class="x">x = 1</code> and <var>n</var>, <samp>ok</samp>.</p>
<table border=1><thead><tr><th abbr="Short">A head<th>Another<tbody><tr><td>A cell<td><ul><li>One<li>Two</ul></table>
<form action="/go"><label>Name <input type=text placeholder="Your name" disabled required></label>
<input type="submit" value='Send it'><input type=hidden value="a b"><button type=button>Press</button>
<select><optgroup label="A group"><option selected>One dog<option>Two dogs</select>
<textarea placeholder="A text">  leave <b>this</b>
</textarea></form>
<svg viewBox="0 0 1 1"><path d='M0'/><text>no words</text><style>a > b {}</style></svg>
<pre>
  leave   this <b>too</b>
</pre>
<script>if (a < b && c) document.write("<p>no</p>");</script>
<style>p > b { color: red }</style>
<template><p>leave this</p></template>
<p translate="no">Leave this <b>one</b></p><p class="a notranslate">And this</p>
<p>A <span translate=no>Brand Name</span> and <span class="notranslate">Other Name</span> here.</p>
<p aria-label="A label">a<wbr>b un<!-- c -->usual <i></i> <span aria-hidden=true class=icon></span> done</p>
<video controls><track label="A track" src=x>Not shown</video><picture><img alt="A cat" src=c></picture>
<hr/><?php echo "<p>no</p>"; ?><x-own>An own element</x-own><p>never closed <b>bold
"""

DOCTYPES = [
    "<!DOCTYPE html>",
    "<!doctype html>",
    '<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Strict//EN"\n '
    '"http://www.w3.org/TR/xhtml1/DTD/xhtml1-strict.dtd">',
    '<!DOCTYPE HTML PUBLIC "-//W3C//DTD HTML 4.01//EN">',
    '<?xml version="1.0" encoding="utf-8"?>\n<!DOCTYPE html SYSTEM "about:legacy-compat">',
    "<!-- a comment -->\n<!DOCTYPE html>",
    "",
]
HEAD = """
<html lang="en" class=no-js>
<head><meta charset=utf-8><title>A title &ndash; of the page</title>
<meta name="description" content="What the page is about"><meta name=viewport content="width=device-width">
<meta property='og:title' content='A shared title'><link rel=stylesheet href=a.css /></head>
<body onload="go()">"""
PAGES = [f"{doctype}{HEAD}{BODY}" for doctype in DOCTYPES]
