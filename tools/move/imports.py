"""Imports between targets of the packages layout."""
import ast, sys, pathlib, re, collections
root = pathlib.Path(sys.argv[1] if len(sys.argv)>1 else '.')/'src'
DIST = {'registry':'schemas','broker':'broker','coordinator':'broker','testing':'broker','spark':'spark','cli':'cli','__main__':'cli'}
def dist(mod):
    p = mod.split('.')
    if p[0].startswith('pyspark_kadence'): return 'spark'
    if p[0]!='kadence': return None
    if p[1:3]==['cli','demo']: return 'demo'
    return DIST.get(p[1],'client') if len(p)>1 else 'client'
allmods=set()
for f in root.rglob('*.py*'):
    if f.suffix in('.py','.pyx','.pyi'):
        m='.'.join(f.relative_to(root).with_suffix('').parts); allmods.add(m.removesuffix('.__init__'))
out=collections.defaultdict(list)
for f in sorted(root.rglob('*.py*')):
    if f.suffix not in('.py','.pyx','.pxd','.pyi'): continue
    mod='.'.join(f.relative_to(root).with_suffix('').parts).removesuffix('.__init__')
    text=f.read_text()
    if f.suffix in('.py','.pyi'):
        for n in ast.walk(ast.parse(text)):
            if isinstance(n,ast.ImportFrom) and n.module and n.level==0:
                for a in n.names:
                    full=n.module+'.'+a.name
                    t=full if full in allmods else n.module
                    if dist(t) and dist(t)!=dist(mod): out[dist(mod),dist(t)].append((mod,t,a.name,n.lineno,n.col_offset))
            elif isinstance(n,ast.ImportFrom) and n.level: print('relative',f)
            elif isinstance(n,ast.Import):
                for a in n.names:
                    if dist(a.name) and dist(a.name)!=dist(mod): out[dist(mod),dist(a.name)].append((mod,a.name,'',n.lineno,n.col_offset))
    else:
        for m in re.finditer(r'^\s*(?:from (kadence[\w.]*) c?import (\w+)|c?import (kadence[\w.]*))',text,re.M):
            t=m[1] or m[3]
            if dist(t)!=dist(mod): out[dist(mod),dist(t)].append((mod,t,m[2],0,0))
mode=sys.argv[2] if len(sys.argv)>2 else ''
for k,v in sorted(out.items()):
    print('##',*k,len(v))
    c=collections.defaultdict(list)
    for m,t,a,l,col in v: c[t].append(f'{m}:{l}{"" if col==0 else "(in)"}')
    for t,ms in sorted(c.items()):
        print('   ',t,len(ms),' '.join(ms[:3 if k[0]!='client' else 99]))
