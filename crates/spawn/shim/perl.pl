# Loaded by PERL5OPT in front of the script, in a template only. Nothing here is seen by the script but
# the package galgo.
package galgo;
our ($text, $learn, %loaded, %before, %changed);

BEGIN {
    delete $INC{'/proc/self/fd/5'};
    # What the program starts while it is loaded is no template.
    delete @ENV{qw(PERL5OPT LD_PRELOAD LD_BIND_NOW GALGO_TEMPLATE)};

    package DynaLoader;
    boot_DynaLoader('DynaLoader') if defined(&boot_DynaLoader) && !defined(&dl_error);
    my $shim = dl_load_file('/proc/self/fd/4', 0) or die dl_error();
    for my $name (qw(modules search holds stop learned guard watch unwatch)) {
        my $symbol = dl_find_symbol($shim, "galgo_perl_$name") or die dl_error();
        dl_install_xsub("galgo::$name", $symbol);
    }
    $] >= 5.016 ? galgo::watch() : (%before = %ENV);
}

sub load_learned {
    local ($@, $!, $?, $SIG{__DIE__}, $SIG{__WARN__}) = ('', 0, 0, 'DEFAULT', sub { });
    modules();
    my @modules = split /\n/, $text or return;
    my %before = %INC;
    for my $module (@modules) {
        eval { require $module }; # a value that the server has checked: A/B.pm
    }
    return if $] < 5.016;
    $ENV{GALGO_REPORT} = join '', map { "$_\n" } grep { !exists $before{$_} } keys %INC;
    guard();
    delete $ENV{GALGO_REPORT};
}

# What was printed and not yet written would be printed by every child; written, it is noticed.
sub flush {
    for my $handle (\*STDOUT, \*STDERR) {
        my $before = select $handle;
        my $each = $|;
        $| = 1;
        $| = $each;
        select $before;
    }
}

# Where modules are looked for. `use lib 'lib'` makes relative names. What is behind code (perlfunc, require) is found by that.
sub folders {
    my $here = readlink('/proc/self/cwd');
    my @folders;
    for (@INC) {
        last if ref;
        push @folders, $_ if defined && length && !/\n/;
    }
    return join '', map { m{^/} ? "$_\n" : "$here/$_\n" } @folders;
}

# The files that were loaded. Some modules note themselves under what is no file.
sub files {
    my $here = readlink('/proc/self/cwd');
    my @files = grep { defined && !ref && !/\n/ } $0, values %INC;
    @files = map { m{^/} ? $_ : length && -e ? "$here/$_" : () } @files;
    return join '', map { "$_\n" } @files;
}

# What BEGIN blocks did to the environment they do to that of each request.
sub note_changes {
    for my $name (keys %before, keys %ENV) {
        my ($old, $new) = @{[$before{$name}, $ENV{$name}]};
        $changed{$name} = $new
            if defined $old != defined $new or defined $old and $old ne $new;
    }
}

sub repeat_changes {
    for my $name (keys %changed) {
        if (defined $changed{$name}) { $ENV{$name} = $changed{$name} }
        else { delete $ENV{$name} }
    }
}

# Until stop() this is the template; what it holds then a child would have to free.
sub stop_here {
    local ($!, $@);
    load_learned();
    unwatch() if $] >= 5.016;
    flush();
    note_changes();
    $ENV{GALGO_REPORT} = folders();
    search();
    $ENV{GALGO_REPORT} = files();
    stop();
    $learn = $text;
    %loaded = map { $_ => 1 } keys %INC if $learn;
    repeat_changes() if %changed;
}

# The first of all INIT blocks, and the last of all END blocks, for it is defined first.
INIT {
    stop_here();
    CORE::srand();
    $^T = time;
}
END {
    if ($learn) {
        local ($?, $!, $@);
        my $here = readlink('/proc/self/cwd');
        my @named = grep { !$loaded{$_} && defined $INC{$_} && !ref $INC{$_} } keys %INC;
        $ENV{GALGO_REPORT} = join '', map { "$_\t" . ($INC{$_} =~ m{^/} ? '' : "$here/") . "$INC{$_}\n" } @named;
        learned();
    }
}
galgo::holds(); # the block above is compiled
1;
